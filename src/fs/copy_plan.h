// SPDX-License-Identifier: Apache-2.0
// How an object is copied inside the bucket: a pure decision.
#pragma once

#include <cstdint>
#include <vector>

#include "ckptfs/object_store.h"

namespace ckptfs {

// Below this one CopyObject is faster than a multipart copy's three round trips (S3 copies some hundred MB/s in one
// request). CopyObject itself ends at 5 GiB.
inline constexpr std::uint64_t kMultipartCopyThreshold = std::uint64_t{64} << 20;
// Limits of UploadPartCopy: 5 GiB a part, 10,000 parts (Amazon S3 multipart upload limits).
inline constexpr std::uint64_t kMaxCopyPart = std::uint64_t{5} << 30;
inline constexpr std::uint64_t kMaxParts = 10'000;

inline bool copy_in_parts(std::uint64_t size) {
    return size >= kMultipartCopyThreshold;
}

// Equal ranges that cover the object, the last one shorter. Parts are small enough that many are copied at once and
// large enough that the biggest object (5 TiB) fits in 10,000 of them.
std::vector<ByteRange> copy_ranges(std::uint64_t size);

}  // namespace ckptfs
