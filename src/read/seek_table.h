// SPDX-License-Identifier: Apache-2.0
// Reads the seek table of a version where it was opened without one, or where a frame does not fit the one it has: no
// checksum covers a table, and a bit of it flipped in transit makes a good frame look damaged.
//
// Tables may be large, and an object with many bad frames asks for each: it is read once for all that ask. What cannot
// be read is read anew for the next one.
//
// Threads: may be called from any thread; answers at once or on the executor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "read/block.h"
#include "read/file_reader.h"

namespace ckptfs {

// The one that it was opened with, or else has in the store.
void with_table(ReadEnvironment& environment, const std::shared_ptr<CachedVersion>& version, SeekTable::Done done);

// Null where `first`, that of with_table(), says the same of the frame at this offset, or none can be read.
using Reread = std::function<void(std::shared_ptr<const FrameLayout>)>;
void read_table_again(ReadEnvironment& environment, const std::shared_ptr<CachedVersion>& version,
                      const std::shared_ptr<const FrameLayout>& first, std::uint64_t offset, Reread done);

}  // namespace ckptfs
