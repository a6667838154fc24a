// SPDX-License-Identifier: Apache-2.0
// Names, keys and inode numbers: pure functions.
//
// A path is relative to the mount, without a leading '/'; a directory's path ends in '/' and the root's is empty, so
// that the key of a file is prefix + path, and everything below a directory begins with prefix + its path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptfs/status.h"

namespace ckptfs::fs {

// Success, or why there is no file of this name: ENAMETOOLONG, EINVAL, or EPERM for the control directory.
Status check_name(std::string_view prefix, std::string_view directory_path, std::string_view name);
// As above, and EILSEQ if S3 accepts no such key, although another store may hold one.
Status check_new_name(std::string_view prefix, std::string_view directory_path, std::string_view name);
// As above, for a directory, whose key is longer by the '/' at its end.
Status check_new_directory_name(std::string_view prefix, std::string_view directory_path, std::string_view name);

// What a listing of one directory shows for a key or common prefix below it; empty for keys that cannot be paths
// ("", ".", "..", a name over 255 bytes, a '/' inside, a zero byte) and for the control directory.
struct ListedName {
    std::string name;
    bool is_directory = false;
};
std::optional<ListedName> listed_name(std::string_view directory_key, std::string_view key, bool at_root);

// The same name has the same number, on every mount and after every restart: programs that open a file again compare
// device and inode. Never 0 or 1.
std::uint64_t inode_number(std::string_view path);

}  // namespace ckptfs::fs
