// SPDX-License-Identifier: Apache-2.0
// Sends what a file being changed holds through a writer, in order and as fast as the writer takes it.
//
// Holds one buffer of file data at a time, and none while the writer fetches what it sends before: that takes memory of
// the same kind, and what frees such memory cannot reach this buffer. Zeros are not sent: the writer fills them in.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "staged/content_view.h"
#include "write/file_writer.h"
#include "write/stream_writer.h"

namespace ckptfs {

struct FeedSource {
    StagedContent content;
    // Ranges that are not sent either: the writer has them.
    std::vector<FileRange> kept;
    std::shared_ptr<const StagedBytes> staged;
    std::shared_ptr<BaseReader> base;
};

// Sends the bytes of `run`. The writer's bytes end at `run.begin` or before. `done` runs on any thread.
void feed(WriteEnvironment& environment, FeedSource source, ByteRun run, std::shared_ptr<StreamWriter> writer,
          std::function<void(Status)> done);

}  // namespace ckptfs
