// SPDX-License-Identifier: Apache-2.0
// Directory entries in the kernel's format.
// Threads: any.
#pragma once

#include <cstddef>
#include <vector>

#include "fs/file_operations.h"
#include "fuse/pending_request.h"

namespace ckptfs {

// How many entries to ask for when the kernel has room for `size` bytes. An estimate: what does not fit is asked for
// again, what would have fitted comes with the next request.
std::size_t entries_that_fit(std::size_t size, bool with_attributes);

// Sends as many entries as fit. Lookups counted for entries that the kernel did not get are taken back.
void reply_directory(fs::FileOperations& fs, PendingRequest& request, const std::vector<fs::DirectoryEntry>& entries,
                     std::size_t size, bool with_attributes);

}  // namespace ckptfs
