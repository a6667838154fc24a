// SPDX-License-Identifier: Apache-2.0
#include "fuse/replies.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace ckptfs {
namespace {

// EHWPOISON, the last one of asm-generic/errno.h; the kernel's own values begin at 512.
constexpr int kLastErrno = 133;
// st_blocks counts these, whatever st_blksize says (stat(2)).
constexpr std::uint64_t kStatBlock = 512;

timespec to_timespec(WallTime time) {
    const auto since_epoch = time.time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
    timespec result{};
    result.tv_sec = seconds.count();
    result.tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch - seconds).count();
    return result;
}

mode_t mode_of(fs::FileType type) {
    switch (type) {
        case fs::FileType::kDirectory:
            return S_IFDIR;
        case fs::FileType::kSymlink:
            return S_IFLNK;
        case fs::FileType::kSocket:
            return S_IFSOCK;
        case fs::FileType::kFifo:
            return S_IFIFO;
        case fs::FileType::kFile:
            break;
    }
    return S_IFREG;
}

}  // namespace

struct stat to_stat(const fs::Attributes& attributes) {
    struct stat result {};
    const bool directory = attributes.type == fs::FileType::kDirectory;
    result.st_ino = attributes.inode;
    result.st_mode = (attributes.mode & 07777U) | mode_of(attributes.type);
    result.st_nlink = !attributes.is_linked ? 0 : directory ? 2 : 1;
    result.st_uid = attributes.uid;
    result.st_gid = attributes.gid;
    result.st_size = static_cast<off_t>(attributes.size);
    result.st_blocks = static_cast<blkcnt_t>((attributes.size + kStatBlock - 1) / kStatBlock);
    result.st_blksize = kPreferredBlockSize;
    result.st_mtim = to_timespec(attributes.modified);
    result.st_ctim = result.st_mtim;
    result.st_atim = result.st_mtim;
    return result;
}

double to_seconds(Milliseconds duration) {
    return std::chrono::duration<double>(duration).count();
}

fuse_entry_param to_entry(const fs::Entry& entry) {
    fuse_entry_param result{};
    result.ino = entry.node;
    result.attr = to_stat(entry.attributes);
    result.attr_timeout = to_seconds(entry.attributes.valid_for);
    result.entry_timeout = to_seconds(entry.valid_for);
    return result;
}

int to_errno(const Error& error) {
    if (error.errno_value == ENOSYS) {
        return EOPNOTSUPP;
    }
    return error.errno_value >= 1 && error.errno_value <= kLastErrno ? error.errno_value : EIO;
}

}  // namespace ckptfs
