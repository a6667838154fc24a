// SPDX-License-Identifier: Apache-2.0
// Text made from values: the one place that names the formatting library.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace ckptfs {

// Placeholders are checked by the compiler, as in std::format of newer libraries.
template <class... Arguments>
[[nodiscard]] std::string format(fmt::format_string<Arguments...> pattern, Arguments&&... arguments) {
    return fmt::format(pattern, std::forward<Arguments>(arguments)...);
}

}  // namespace ckptfs
