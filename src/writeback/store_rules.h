// SPDX-License-Identifier: Apache-2.0
// What S3 answers, where this mount answers in its place. Pure.
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

// Where in an object of this size; empty where the range begins behind its end.
[[nodiscard]] std::optional<ByteRange> range_in(const std::optional<ByteRange>& range, std::uint64_t size);

}  // namespace ckptfs
