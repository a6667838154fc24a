// SPDX-License-Identifier: Apache-2.0
// Reads the seek table of a version if it was opened without one, or if a frame does not fit the one it has: no
// checksum covers a table, and a bit of it flipped in transit makes a good frame look damaged.
//
// Tables may be large, and an object with many bad frames needs one for each: one read serves all callers. If it fails,
// the next caller starts another.
//
// Threads: may be called from any thread; `done` is called at once or on the executor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "read/block.h"
#include "read/file_reader.h"

namespace ckptfs {

// Gets the table that the version was opened with, or else reads the one in the store.
void with_table(ReadEnvironment& environment, const std::shared_ptr<CachedVersion>& version, SeekTable::Done done);

// Gets null if `first`, the table of with_table(), says the same of the frame at `offset`, or no table can be read.
using Reread = std::function<void(std::shared_ptr<const FrameLayout>)>;
void read_table_again(ReadEnvironment& environment, const std::shared_ptr<CachedVersion>& version,
                      const std::shared_ptr<const FrameLayout>& first, std::uint64_t offset, Reread done);

}  // namespace ckptfs
