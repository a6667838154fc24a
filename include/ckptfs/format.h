// SPDX-License-Identifier: Apache-2.0
// Names that every mount of a prefix agrees on.
//
// Everything mounts tell each other lies under `.ckptfs/` at the top of the prefix; it is hidden from listings and
// swept by `ckptfs gc`. A directory is a marker object whose key ends in '/', or is implied by any key below it.
//
//   .ckptfs/tmp/UUID           a file written out of order, before it has its name
//   .ckptfs/failed/DIR/NAME    an empty record: NAME in DIR could not be written (no commit over a failed sibling)
//   .ckptfs/mounts/UUID        heartbeat of a mount
#pragma once

#include <cstddef>
#include <string_view>

namespace ckptfs {

inline constexpr std::string_view kControlDirectory = ".ckptfs";
inline constexpr std::string_view kTemporaryPrefix = ".ckptfs/tmp/";
inline constexpr std::string_view kFailedPrefix = ".ckptfs/failed/";
inline constexpr std::string_view kMountsPrefix = ".ckptfs/mounts/";

// Object key length limit of Amazon S3 ("Creating object key names"), in bytes of UTF-8.
inline constexpr std::size_t kMaxKeyBytes = 1024;
// NAME_MAX of Linux.
inline constexpr std::size_t kMaxNameBytes = 255;

}  // namespace ckptfs
