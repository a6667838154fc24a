// SPDX-License-Identifier: Apache-2.0
// The object of a symbolic link: ckptfs-format(5), "Symbolic links". Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ckptfs/object_store.h"

namespace ckptfs::fs {

// PATH_MAX of Linux (4,096) without the final zero byte.
inline constexpr std::uint64_t kMaxSymlinkTarget = 4095;

// The request for a new object, which never replaces another one.
[[nodiscard]] PutRequest symlink_object(std::string key, std::string_view target);
// Length of the target in bytes; empty where the object, described with its metadata, is no symbolic link.
[[nodiscard]] std::optional<std::uint64_t> symlink_size(const ObjectInfo& object);
// EIO if the body does not hold a target as described.
[[nodiscard]] Result<std::string> symlink_target(const ObjectInfo& object, const Payload& body);

}  // namespace ckptfs::fs
