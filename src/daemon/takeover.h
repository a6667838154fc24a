// SPDX-License-Identifier: Apache-2.0
// Taking a mount point back from a daemon that has died.
//
// A mount whose daemon was killed stays in the tree and answers ENOTCONN to everything. It is detached where it is
// ours to mount again: of the same source, made by the same user, and certainly dead. Processes that are still in it
// keep getting errors; those that open its path see the new mount. Until then the dead one stays, because files that
// are written into the bare directory would never reach the store.
//
// Threads: used by one thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "ckptfs/status.h"
#include "fuse/mount_table.h"

namespace ckptfs {

// The right to mount at a place. Its file is removed when the lock is released, and only then: a waiter checks whether
// the name still leads to the file that it has locked.
class PlaceLock {
public:
    PlaceLock() = default;
    PlaceLock(FileDescriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
    PlaceLock(PlaceLock&& other) noexcept = default;
    PlaceLock& operator=(PlaceLock&& other) = delete;
    ~PlaceLock();

private:
    FileDescriptor file_;
    std::string path_;
};

// What a takeover needs from the system.
struct TakeoverSystem {
    std::function<Result<std::vector<MountEntry>>()> mount_table;
    // True only if it is certain: a missing reply proves nothing.
    std::function<bool(const std::string& mount_point)> is_dead;
    std::function<Status(const std::string& mount_point)> detach;
    // Waits for its turn, because checking a mount point and then mounting there must not overlap with another process.
    std::function<Result<PlaceLock>(const std::string& mount_point)> lock;
};
[[nodiscard]] TakeoverSystem takeover_system(std::function<Result<std::string>()> lock_directory);

// Whether there is a dead mount at `mount_point` (resolved) that is ours to take back; an error if it is dead and not
// ours.
Result<bool> is_ours_to_take_back(const std::string& mount_point, const std::string& source, uid_t self,
                                  const TakeoverSystem& system);

// Detaches dead mounts that are ours to take back, and returns whether there was one. A live mount is left alone. The
// caller holds the lock.
Result<bool> take_back(const std::string& mount_point, const std::string& source, uid_t self,
                       const TakeoverSystem& system);

}  // namespace ckptfs
