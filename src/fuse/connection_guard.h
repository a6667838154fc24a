// SPDX-License-Identifier: Apache-2.0
// A process beside the daemon that ends the mount's connection if the daemon is killed and cannot exit.
//
// Linux ends the connection when the last thread of the daemon is gone, and with it every call that waits for a reply.
// A thread that tells the kernel to forget a name (FUSE_NOTIFY_INVAL_ENTRY) waits uninterruptibly for the lock of the
// directory. If that is held by a call that waits for the daemon, as open(2) with O_CREAT does while the name is looked
// up, and the daemon is killed just then, each waits for the other: every process that uses the mount hangs, and no
// signal ends it.
//
// Ownership: the process ends with the daemon, whichever way that ends.
// Threads: start() forks, so it must be called before the first thread is started, on the thread that lives as long as
// the daemon: the guard is signalled when that thread ends.
#pragma once

#include "base/file_descriptor.h"
#include "fuse/mount_table.h"

namespace ckptfs {

class ConnectionGuard {
public:
    // Starts the process. If that fails, the log says what may happen, and the other functions do nothing.
    void start();
    // To be called once. To end the connection, the process needs CAP_SYS_ADMIN, or /sys/fs/fuse/connections.
    void watch(const MountEntry& mount);
    // The connection has ended: the mount's numbers may be those of another one from now on. From any thread.
    void release();

private:
    // Our end of the socket to the process; empty if there is none. Closed by the kernel with the last thread, or shut
    // down.
    FileDescriptor daemon_;
};

}  // namespace ckptfs
