// SPDX-License-Identifier: Apache-2.0
// Floats and what is left of them in bf16: their upper half, rounded to nearest, ties to even.
//
// Pure functions. All processors give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ckptfs {

// As frameworks cast; a NaN becomes 0x7fc0, whatever its payload. `floats` need not be aligned.
void round_to_bf16(const std::byte* floats, std::size_t count, std::uint16_t* rounded);

// The floats with these lower halves (`low`: their lowest bytes, `high`: the bytes above) that round to `bf16`, which
// need not be aligned.
void restore_floats(const std::byte* low, const std::byte* high, const std::byte* bf16, std::size_t count,
                    std::byte* floats);

// A float that restore_floats() does not give.
struct RoundingException {
    std::uint32_t index = 0;
    std::uint16_t upper_half = 0;
};

// Adds those of `floats`, whose roundings these are, until there are more than `limit`; false then.
[[nodiscard]] bool find_exceptions(const std::byte* floats, const std::uint16_t* rounded, std::size_t count,
                                   std::size_t limit, std::vector<RoundingException>& exceptions);

}  // namespace ckptfs
