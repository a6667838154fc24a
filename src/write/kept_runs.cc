// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <span>

#include "write/file_writer_impl.h"

namespace ckptfs {

const FileRange* FileWriterImpl::next_run(std::uint64_t from) const {
    const auto next =
        std::find_if(kept_runs_.begin(), kept_runs_.end(), [from](const FileRange& run) { return run.offset >= from; });
    return next == kept_runs_.end() ? nullptr : &*next;
}

bool FileWriterImpl::keep_run(const FileRange& run) {
    CopiedRun copied;
    copied.range = run;
    copied.stored_size = run.size;
    std::uint64_t stored_begin = run.offset;
    if (!committed_frames_->plain()) {
        const std::uint64_t first = run.offset / kFrameSize;
        const std::uint64_t end = (run.end() + kFrameSize - 1) / kFrameSize;
        copied.records = std::span(committed_frames_->records).subspan(first, end - first);
        const auto add = [](std::uint64_t sum, const FrameRecord& frame) { return sum + frame.stored_size; };
        copied.stored_size = std::accumulate(copied.records.begin(), copied.records.end(), std::uint64_t{0}, add);
        stored_begin = committed_frames_->stored_offset(first);
    }
    copied.copy = plan_run_copy(stored_begin, copied.stored_size, committed_->stored_size);
    if (!cycle_->copy_run(copied)) {
        return false;
    }
    size_ = std::max(size_, run.end());
    const FileRange* next = next_run(run.end());
    cycle_->set_next_copy(next != nullptr ? next->offset : 0);
    return true;
}

}  // namespace ckptfs
