// SPDX-License-Identifier: Apache-2.0
// Makes libfuse's values of the filesystem's. Pure.
#pragma once

#include <fuse_lowlevel.h>
#include <sys/stat.h>

#include "fs/file_operations.h"

namespace ckptfs {

// What Python's file objects, cp and cat take as the size of their buffers. One buffer is then one FUSE request of the
// largest size that libfuse 3.14 can receive (1 MiB); a larger value would only make every small file cost more memory
// in programs that allocate the whole buffer at open.
inline constexpr blksize_t kPreferredBlockSize = blksize_t{1} << 20;

struct stat to_stat(const fs::Attributes& attributes);
fuse_entry_param to_entry(const fs::Entry& entry);
double to_seconds(Milliseconds duration);

// The errno a program may see: ENOSYS would make the kernel stop asking for good, and values outside of errno's range
// cannot be sent.
int to_errno(const Error& error);

}  // namespace ckptfs
