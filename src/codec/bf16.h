// SPDX-License-Identifier: Apache-2.0
// Floats and their bf16: the upper half of a float, rounded to nearest, ties to even.
//
// Pure functions. All processors give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ckptfs {

// Rounds as frameworks do when they cast; a NaN becomes 0x7fc0, whatever its payload. `floats` need not be aligned.
void round_to_bf16(const std::byte* floats, std::size_t count, std::uint16_t* rounded);

// Restores the floats with these lower halves (`low`: their lowest bytes, `high`: the bytes above) that round to
// `bf16`, which need not be aligned.
void restore_floats(const std::byte* low, const std::byte* high, const std::byte* bf16, std::size_t count,
                    std::byte* floats);

// A float that restore_floats() does not restore.
struct RoundingException {
    std::uint32_t index = 0;
    std::uint16_t upper_half = 0;
};

// Adds the exceptions among `floats`, of which `rounded` are the roundings. Stops and returns false once `exceptions`
// has more than `limit`.
[[nodiscard]] bool find_exceptions(const std::byte* floats, const std::uint16_t* rounded, std::size_t count,
                                   std::size_t limit, std::vector<RoundingException>& exceptions);

}  // namespace ckptfs
