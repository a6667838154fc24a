// SPDX-License-Identifier: Apache-2.0
// What S3 allows in sizes and numbers, for the policies that plan requests. Source of all of them: "Amazon S3 multipart
// upload limits" in the Amazon S3 User Guide.
#pragma once

#include <cstdint>

namespace ckptfs {

// The last part of an upload may be smaller.
inline constexpr std::uint64_t kMinPartSize = std::uint64_t{5} << 20;
inline constexpr std::uint64_t kMaxPartSize = std::uint64_t{5} << 30;
inline constexpr int kMaxPartNumber = 10'000;
inline constexpr std::uint64_t kMaxObjectSize = std::uint64_t{5} << 40;

}  // namespace ckptfs
