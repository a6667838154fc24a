// SPDX-License-Identifier: Apache-2.0
#include "fs/state/paths.h"

#include <algorithm>
#include <cerrno>

#include "base/utf8.h"
#include "base/xxhash.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"

namespace ckptfs::fs {

namespace {

Failure too_long() {
    return failure(ENAMETOOLONG, "the name or its key is longer than S3 keeps (1,024 bytes)");
}

}  // namespace

Status check_name(std::string_view prefix, std::string_view directory_path, std::string_view name) {
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos) {
        return failure(EINVAL, "not a file name");
    }
    if (name.size() > kMaxNameBytes || prefix.size() + directory_path.size() + name.size() > kMaxKeyBytes) {
        return too_long();
    }
    if (directory_path.empty() && name == kControlDirectory) {
        return failure(EPERM, "the name .ckptfs at the top of the mount is reserved");
    }
    return {};
}

Status check_new_name(std::string_view prefix, std::string_view directory_path, std::string_view name) {
    // "Creating object key names" in the Amazon S3 user guide.
    if (!is_utf8(name)) {
        return failure(EILSEQ, escaped(name) + ": the names that S3 keeps are UTF-8; give the file another name");
    }
    return check_name(prefix, directory_path, name);
}

Status check_new_directory_name(std::string_view prefix, std::string_view directory_path, std::string_view name) {
    if (prefix.size() + directory_path.size() + name.size() + 1 > kMaxKeyBytes) {
        return too_long();
    }
    return check_new_name(prefix, directory_path, name);
}

std::optional<ListedName> listed_name(std::string_view directory_key, std::string_view key, bool at_root) {
    std::string_view name = key.substr(directory_key.size());
    ListedName listed;
    listed.is_directory = name.ends_with('/');
    if (listed.is_directory) {
        name.remove_suffix(1);
    }
    if (name.empty() || name == "." || name == ".." || name.size() > kMaxNameBytes ||
        name.find('/') != std::string_view::npos || name.find('\0') != std::string_view::npos ||
        (at_root && name == kControlDirectory)) {
        return std::nullopt;
    }
    listed.name = name;
    return listed;
}

std::uint64_t inode_number(std::string_view path) {
    // Directories and files of one name share a number: they cannot exist at once.
    if (path.ends_with('/')) {
        path.remove_suffix(1);
    }
    return std::max<std::uint64_t>(xxh3(path), 2);
}

}  // namespace ckptfs::fs
