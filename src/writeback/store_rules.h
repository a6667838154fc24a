// SPDX-License-Identifier: Apache-2.0
// S3's replies, for a mount that replies in its place. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs {

[[nodiscard]] Failure no_such_key(const std::string& key);
[[nodiscard]] Failure another_version(const std::string& key);
[[nodiscard]] Failure exists_already(const std::string& key);
[[nodiscard]] Failure invalid_range(const std::string& key);

// The range within an object of this size; empty if it begins behind the end.
[[nodiscard]] std::optional<ByteRange> range_in(const std::optional<ByteRange>& range, std::uint64_t size);

}  // namespace ckptfs
