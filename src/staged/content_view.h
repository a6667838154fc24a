// SPDX-License-Identifier: Apache-2.0
// Reads what a file being changed holds, from the places where it lies.
//
// Ownership: a view keeps its sources alive. Threads: a value; callbacks run on any thread, without locks held, each
// exactly once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ckptfs/bytes.h"
#include "ckptfs/executor.h"
#include "ckptfs/status.h"
#include "staged/base_reader.h"
#include "staged/staged_bytes.h"
#include "staged/staged_content.h"

namespace ckptfs {

struct ContentView {
    // In order and without gaps.
    std::vector<ContentPiece> pieces;
    std::shared_ptr<const StagedBytes> staged;
    std::shared_ptr<BaseReader> base;
    // The bytes are to be written again: those of the base are checked (BaseReader::read_to_write).
    bool is_sent = false;

    [[nodiscard]] std::uint64_t size() const { return pieces.empty() ? 0 : pieces.back().end - pieces.front().begin; }
    [[nodiscard]] bool only(ByteSource source) const {
        return pieces.empty() || (pieces.size() == 1 && pieces.front().source == source);
    }
};

// `target` has the view's size and outlives the callback. `disk`: an executor for tasks that wait; `done` runs on it.
void read_content(Executor& disk, ContentView view, MutableByteSpan target, std::function<void(Status)> done);

}  // namespace ckptfs
