// SPDX-License-Identifier: Apache-2.0
// The mount itself: attached to a directory, answering nothing yet.
//
// Between create() and the first request that a Session answers, everything that touches the mount waits, so the daemon
// must not. The kernel's side is found in /proc/self/mountinfo instead.
//
// Ownership: owns the connection's first descriptor; a Session works on a duplicate. The destructor detaches, unless
// the mount is left dead. Threads: detach() may be called from any thread; the rest is constant.
#pragma once

#include <memory>
#include <string>

#include "base/file_descriptor.h"
#include "ckptfs/config.h"
#include "ckptfs/status.h"
#include "fuse/mount_table.h"

namespace ckptfs {

class Mount {
public:
    // mount_point: absolute and resolved. Errors say what to do.
    static Result<std::unique_ptr<Mount>> create(const MountConfig& config, bool read_only);
    virtual ~Mount() = default;

    // A descriptor of the connection for a Session.
    virtual Result<FileDescriptor> connection() const = 0;
    [[nodiscard]] virtual const MountEntry& entry() const = 0;
    // Whether the mount is the topmost at its place, in the mount namespace of this process.
    [[nodiscard]] virtual bool is_shown() const = 0;
    // Takes the mount out of the tree; what is open in it fails from now on. Does nothing when another process has
    // unmounted it. Only the first call reports whether it is gone.
    virtual Status detach() = 0;
    // Leaves the mount in the tree: detach() and the destructor do not detach it any more. Once its connection ends,
    // everything there fails with ENOTCONN, and nothing is written into the bare directory below.
    virtual void leave_dead() = 0;
};

// The mount's read-ahead, as the kernel's sysfs ABI names it (/sys/class/bdi/MAJOR:MINOR/read_ahead_kb). Needs root.
// To be called once the session is ready: the kernel sets its own value when it gets the reply to INIT.
Status set_read_ahead(const MountEntry& mount, unsigned kibibytes);

}  // namespace ckptfs
