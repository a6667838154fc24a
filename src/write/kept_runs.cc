// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <utility>

#include "write/file_writer_impl.h"

namespace ckptfs {
namespace {

struct StoredRange {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
};

StoredRange stored_range(const CommittedFrames& frames, const FileRange& run) {
    if (frames.plain()) {
        return {run.offset, run.size};
    }
    const auto first = frames.records.begin() + static_cast<std::ptrdiff_t>(run.offset / kFrameSize);
    const auto end = frames.records.begin() + static_cast<std::ptrdiff_t>((run.end() + kFrameSize - 1) / kFrameSize);
    const auto add = [](std::uint64_t sum, const FrameRecord& frame) { return sum + frame.stored_size; };
    return {frames.stored_offset(run.offset / kFrameSize), std::accumulate(first, end, std::uint64_t{0}, add)};
}

}  // namespace

const FileRange* FileWriterImpl::next_run() const {
    const auto next = std::find_if(kept_runs_.begin(), kept_runs_.end(),
                                   [this](const FileRange& run) { return run.offset >= cycle_->sequencer.end(); });
    return next == kept_runs_.end() ? nullptr : &*next;
}

bool FileWriterImpl::keep_run(const FileRange& run) {
    // What comes before it has to be in its part, which ends here.
    if (cycle_->sequencer.under_way() > 0 || cycle_->spilling ||
        cycle_->parts_under_way >= environment_.config.max_parts_in_flight) {
        return false;
    }
    send(cycle_->assembler->seal());
    if (failure_) {
        return false;
    }
    send(cycle_->assembler->drop_kept());
    begin_upload();
    const StoredRange stored = stored_range(*committed_frames_, run);
    const CopyPlan copy = plan_run_copy(stored.offset, stored.size, committed_->stored_size);
    copy_parts(cycle_->assembler->pass_copied(static_cast<int>(copy.pieces.size()), run.end(), stored.size),
               copy.pieces);
    const std::uint64_t end = (run.end() + kFrameSize - 1) / kFrameSize;
    if (!committed_frames_->plain()) {
        cycle_->records.resize(std::max<std::size_t>(cycle_->records.size(), end));
        for (std::uint64_t frame = run.offset / kFrameSize; frame < end; ++frame) {
            cycle_->records[frame] = committed_frames_->records[frame];
        }
    }
    discard(cycle_->sequencer.restart(run.end(), {}));
    size_ = std::max(size_, run.end());
    const FileRange* next = next_run();
    cycle_->assembler->set_next_copy(next != nullptr ? next->offset : 0);
    return true;
}

void FileWriterImpl::copy_parts(int number, const std::vector<CopyPlan::Piece>& pieces) {
    for (const CopyPlan::Piece& piece : pieces) {
        CopySource source{committed_key(), committed_->etag, piece.length, std::nullopt};
        if (piece.length != committed_->stored_size) {
            source.range = ByteRange{piece.offset, piece.length, false};
        }
        ++cycle_->parts_under_way;
        outbox_.add([keep = self(), upload = cycle_->upload, part = number++, source = std::move(source)] {
            upload->copy_part(part, source, [keep, upload](const Status& status) { keep->part_sent(upload, status); });
        });
    }
}

}  // namespace ckptfs
