// SPDX-License-Identifier: Apache-2.0
// FUSE requests as calls of FileOperations: decode, call, reply. Decided here is only what needs no file: which
// requests are refused with EPERM, EOPNOTSUPP or ENOTTY, and that a write with O_SYNC or O_DSYNC is followed by an
// fsync.
//
// Ownership: libfuse's session has the Serving as its userdata; it outlives that session.
// Threads: libfuse calls the operations on the session's workers, many at a time.
#pragma once

#include <functional>

#include "ckptfs/bytes.h"
#include "ckptfs/clock.h"
#include "ckptfs/processes.h"
#include "ckptfs/status.h"
#include "fs/file_operations.h"
#include "fuse/pending_request.h"

struct fuse_lowlevel_ops;

namespace ckptfs {

// What the operations work on. The members are set before the first request.
class Serving {
public:
    virtual ~Serving() = default;
    // Hands over the data of the write that this thread is handling: with the buffer that it lies in, if the worker
    // gets another one to go on with; else once there is a buffer, unless `wanted` returns false by then.
    virtual void hand_over(ByteSpan data, std::function<bool()> wanted,
                           std::function<void(Result<WriteData>)> deliver) = 0;

    fs::FileOperations* fs = nullptr;
    const ProcessInspector* processes = nullptr;
    const Clock* clock = nullptr;
    InterruptWatch interrupts;
};

// libfuse replies ENOSYS for what is left null, which the kernel never shows to a program in these cases: it stops
// asking and does without. access: allowed (default_permissions checks modes); fallocate, O_TMPFILE: EOPNOTSUPP;
// copy_file_range, lseek(SEEK_DATA): the kernel's own; poll: always ready; locks: the kernel's local ones.
const fuse_lowlevel_ops& fuse_operations();

}  // namespace ckptfs
