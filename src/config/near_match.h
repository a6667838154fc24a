// SPDX-License-Identifier: Apache-2.0
// The name that the user may have meant by a mistyped one. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ckptfs {

// The number of letters to add, drop, change or swap with their neighbour to get from one word to the other.
[[nodiscard]] std::size_t edit_distance(std::string_view from, std::string_view to);

// The closest name, at most a third of the word away, or the only one that begins with the word; else empty.
[[nodiscard]] std::string_view near_match(std::string_view word, const std::vector<std::string>& names);

// What follows "there is no option --compres": "; did you mean --compress?", or a full stop. `prefix` is "--".
[[nodiscard]] std::string did_you_mean(std::string_view prefix, std::string_view word,
                                       const std::vector<std::string>& names);

}  // namespace ckptfs
