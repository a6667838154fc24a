// SPDX-License-Identifier: Apache-2.0
#include "write/memory_relief.h"

#include "ckptfs/buffer_pool.h"
#include "write/part_plan.h"

namespace ckptfs {
namespace {

// A quarter of the memory in flight keeps many connections busy, and leaves the rest to be filled meanwhile.
constexpr std::uint64_t kLeavingShare = 4;
// Spilled beyond what is waited for, so that the next writers find room.
constexpr std::size_t kSpareBuffers = 4;

}  // namespace

std::optional<ReliefChoice> choose_relief(std::span<const StuckMemory> writers) {
    std::optional<ReliefChoice> largest;
    std::optional<ReliefChoice> kept;
    std::optional<ReliefChoice> oldest;
    for (std::size_t index = 0; index < writers.size(); ++index) {
        const StuckMemory& writer = writers[index];
        if (writer.may_leave_early && writer.open_part >= kMinPartSize && writer.open_in_memory > 0 &&
            (!largest || writer.open_part > writers[largest->writer].open_part)) {
            largest = {index, Relief::kSendEarly, writer.open_in_memory};
        }
        if (writer.kept_in_memory > 0 && (!kept || writer.kept_in_memory > kept->bytes)) {
            kept = {index, Relief::kSpillKept, writer.kept_in_memory};
        }
        if (writer.open_in_memory > 0 && (!oldest || writer.since < writers[oldest->writer].since)) {
            oldest = {index, Relief::kSpillOpen, writer.open_in_memory};
        }
    }
    return largest ? largest : kept ? kept : oldest;
}

bool needs_relief(const Shortage& shortage) {
    const std::size_t waiting = shortage.writes_waiting + shortage.commits_waiting;
    if (waiting == 0 || shortage.leaving * kLeavingShare >= shortage.held) {
        return false;
    }
    if (shortage.staged_parts_waiting > 0 && shortage.commits_waiting == 0) {
        // They are sent first; else the disk would fill while the store is behind.
        return false;
    }
    return shortage.spilling < (waiting + kSpareBuffers) * BufferPool::kPayloadSize;
}

}  // namespace ckptfs
