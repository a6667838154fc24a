// SPDX-License-Identifier: Apache-2.0
// What S3 allows, for the policies that plan requests. Source of sizes and numbers: "Amazon S3 multipart upload limits"
// in the Amazon S3 User Guide.
#pragma once

#include <chrono>
#include <cstdint>

namespace ckptfs {

// The last part of an upload may be smaller.
inline constexpr std::uint64_t kMinPartSize = std::uint64_t{5} << 20;
inline constexpr std::uint64_t kMaxPartSize = std::uint64_t{5} << 30;
inline constexpr int kMaxPartNumber = 10'000;
inline constexpr std::uint64_t kMaxObjectSize = std::uint64_t{5} << 40;

// How far the clock of a host may be from the store's: beyond it the store refuses the host's requests
// (RequestTimeTooSkewed).
inline constexpr std::chrono::minutes kMaxClockSkew{15};

// A mount knows the store's time to 5 s. The times of the store's servers, and of a mount before and after it was
// killed, differ by less than this.
inline constexpr std::chrono::seconds kTimesDifferBy{20};

}  // namespace ckptfs
