// SPDX-License-Identifier: Apache-2.0
// Amounts in readable form. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.h"

namespace ckptfs {

inline constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kGibibyte = std::uint64_t{1} << 30;

// "1.5"
[[nodiscard]] inline std::string mebibytes(std::uint64_t bytes) {
    return format("{:.1f}", static_cast<double>(bytes) / static_cast<double>(kMebibyte));
}

// "1 file", "2 files"
[[nodiscard]] inline std::string counted(std::uint64_t count, std::string_view what) {
    return format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace ckptfs
