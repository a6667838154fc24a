// SPDX-License-Identifier: Apache-2.0
// A process beside the daemon that ends the mount's connection when the daemon is killed and cannot end.
//
// Linux ends the connection when the last thread of the daemon is gone, and with it every call that waits for an
// answer. A thread that tells the kernel to forget a name (FUSE_NOTIFY_INVAL_ENTRY) waits for the lock of the
// directory, not to be interrupted. Where that is held by a call that waits for the daemon, as open(2) with O_CREAT
// does while the name is looked up, and the daemon is killed just then, each waits for the other: every process that
// uses the mount hangs, and no signal ends it.
//
// Ownership: the process ends with the daemon, whichever way that ends.
// Threads: start() forks, so that it comes before the first thread, in the thread that lives as long as the daemon; its
// end is what the kernel tells of.
#pragma once

#include "base/file_descriptor.h"
#include "fuse/mount_table.h"

namespace ckptfs {

class ConnectionGuard {
public:
    // Where it cannot, the log says what may happen, and what follows does nothing.
    void start();
    // Once; the process needs CAP_SYS_ADMIN, or /sys/fs/fuse/connections.
    void watch(const MountEntry& mount);
    // The connection has ended: the mount's numbers may be those of another one from now on. From any thread.
    void release();

private:
    // None where there is no process. Closed by the kernel with the last thread, or shut down.
    FileDescriptor daemon_;
};

}  // namespace ckptfs
