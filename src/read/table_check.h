// SPDX-License-Identifier: Apache-2.0
// Reads the seek table of a version once more: no checksum covers it, and a bit of it flipped in transit makes a
// good frame look damaged.
//
// Threads: may be called from any thread; answers on the executor.
#pragma once

#include <functional>
#include <memory>

#include "read/block.h"
#include "read/file_reader.h"

namespace ckptfs {

// Nothing where the table that was read first says the same of the frame at this offset, or this one cannot be read.
// Tables may be large, and an object with many bad frames asks for each: it is read once.
void read_table_again(ReadEnvironment& environment, const std::shared_ptr<CachedVersion>& version, std::uint64_t offset,
                      SecondTable::Done done);

}  // namespace ckptfs
