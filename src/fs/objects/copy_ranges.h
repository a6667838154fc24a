// SPDX-License-Identifier: Apache-2.0
// How an object is copied inside the bucket: a pure decision.
#pragma once

#include <cstdint>
#include <vector>

#include "ckptfs/object_store.h"

namespace ckptfs::fs {

// Below this size one CopyObject is faster than a multipart copy's three round trips (S3 copies some hundred MB/s in
// one request).
inline constexpr std::uint64_t kMultipartCopyThreshold = std::uint64_t{64} << 20;

// The limit of CopyObject ("CopyObject", Amazon S3 API Reference).
inline constexpr std::uint64_t kMaxCopySize = std::uint64_t{5} << 30;

inline bool copy_in_parts(std::uint64_t size) {
    return size >= kMultipartCopyThreshold;
}

// Equal ranges that cover the object, the last one shorter. Parts are small enough that many are copied at once and
// large enough that the biggest object fits in far fewer of them than are allowed.
std::vector<ByteRange> copy_ranges(std::uint64_t size);
// Like copy_ranges(), in parts that are as small as the limits allow: they pass through this machine's memory.
std::vector<ByteRange> resent_ranges(std::uint64_t size);

}  // namespace ckptfs::fs
