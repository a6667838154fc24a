// SPDX-License-Identifier: Apache-2.0
// Reads the seek table of a version once more: nothing vouches for it, and a bit of it that flipped on its way makes a
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
void read_table_again(ReadEnvironment& environment, std::shared_ptr<const CachedVersion> version, std::uint64_t offset,
                      std::function<void(std::shared_ptr<const FrameLayout>)> done);

}  // namespace ckptfs
