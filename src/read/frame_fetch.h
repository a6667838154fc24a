// SPDX-License-Identifier: Apache-2.0
// Fills a run of blocks from frames that have to be decoded.
//
// Frames that lie next to each other in the object come in one ranged GET, or from the tail that the first request
// brought; each is decoded on the executor as soon as it is complete, while the next arrives. A frame that turns out
// to be damaged is fetched once more on its own; if it is damaged again, its readers get EIO with key, offset and
// request id.
//
// Ownership: a fetch keeps itself alive; the run is finished when the last of its frames is.
// Threads: start_frame_fetch() from any thread; the rest runs on the store's and the executor's threads.
#pragma once

#include <memory>

#include "read/block.h"
#include "read/file_reader.h"

namespace ckptfs {

void start_frame_fetch(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version,
                       std::shared_ptr<BlockRun> run);

}  // namespace ckptfs
