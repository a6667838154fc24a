// SPDX-License-Identifier: Apache-2.0
// FUSE requests as calls of FileSystem: decode, call, reply. No decision is made here.
//
// Ownership: libfuse's session has the Serving as its userdata; it outlives that session.
// Threads: libfuse calls the operations on the session's workers, many at a time.
#pragma once

#include "ckptfs/buffer_pool.h"
#include "ckptfs/clock.h"
#include "ckptfs/processes.h"
#include "fs/file_system.h"
#include "fuse/pending_request.h"

struct fuse_lowlevel_ops;

namespace ckptfs {

// What the operations work on. The members are set before the first request.
class Serving {
public:
    virtual ~Serving() = default;
    // The buffer that holds the request this thread is handling; the worker takes another for its next one.
    virtual Buffer steal_current_buffer() = 0;

    FileSystem* fs = nullptr;
    const ProcessInspector* processes = nullptr;
    const Clock* clock = nullptr;
    InterruptWatch interrupts;
};

// What is left null libfuse answers with ENOSYS, which the kernel never shows to a program in these cases: it stops
// asking and does without. access: allowed (default_permissions checks modes); fallocate, O_TMPFILE: EOPNOTSUPP;
// copy_file_range, lseek(SEEK_DATA): the kernel's own; poll: always ready; locks: the kernel's local ones.
const fuse_lowlevel_ops& fuse_operations();

}  // namespace ckptfs
