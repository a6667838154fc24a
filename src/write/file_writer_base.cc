// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "ckptfs/store_limits.h"
#include "write/file_writer_impl.h"

namespace ckptfs {

bool FileWriterImpl::cycle_ready() {
    if (!cycle_->begun()) {
        if (!committed_is_known() || !copies_are_known()) {
            return false;
        }
        // Asked once for both calls below: another file may find out in between that the store copies nothing, and what
        // is not copied then would be sent unchecked.
        const bool sends_all = sends_all_again();
        if (!committed_is_checked(sends_all)) {
            return false;
        }
        begin_cycle(sends_all);
    }
    if (cycle_->end() >= kept_size_) {
        return true;
    }
    fetch_block();
    return false;
}

bool FileWriterImpl::committed_is_known() {
    if (kept_size_ == 0 || committed_frames_) {
        return true;
    }
    if (cycle_->begins_to_fetch()) {
        outbox_.add([keep = self(), cycle = WeakCycle(cycle_), key = committed_key(), committed = *committed_] {
            read_committed_frames(keep->environment_.store, keep->environment_.codec, key, committed,
                                  [keep, cycle, key](Result<CommittedFrames> frames) {
                                      keep->resume(cycle, [&](UploadCycle& present) REQUIRES(keep->mutex_) {
                                          present.has_fetched();
                                          keep->know_committed(key, std::move(frames));
                                      });
                                  });
        });
    }
    return false;
}

void FileWriterImpl::know_committed(const std::string& key, Result<CommittedFrames> frames) {
    if (frames) {
        committed_frames_ = std::make_shared<const CommittedFrames>(std::move(*frames));
    } else if (!has_moved(key)) {
        fail(about_this_file(std::move(frames.error())));
    }
}

bool FileWriterImpl::sends_all_again() const {
    return kept_runs_.empty() && environment_.store.lacks_part_copy(committed_ ? committed_key() : key_);
}

// Copies are planned before the first byte is sent.
bool FileWriterImpl::copies_are_known() {
    if (kept_size_ < kMinPartSize || !kept_runs_.empty() || copies_known_) {
        return true;
    }
    if (cycle_->begins_to_fetch()) {
        outbox_.add([keep = self(), cycle = WeakCycle(cycle_), key = key_] {
            keep->environment_.store.find_part_copy(key, [keep, cycle] {
                keep->resume(cycle, [&](UploadCycle& present) REQUIRES(keep->mutex_) {
                    present.has_fetched();
                    keep->copies_known_ = true;
                });
            });
        });
    }
    return false;
}

bool FileWriterImpl::committed_is_checked(bool sends_all) {
    const bool plain = kept_size_ > 0 && committed_frames_ && committed_frames_->plain();
    const std::uint64_t from = plain && !sends_all ? plan_copy(kept_size_, group_->plan()).fetch_from : 0;
    if (!plain || from == kept_size_) {
        checked_ = nullptr;
        return true;
    }
    if (checked_ && checked_->etag == committed_->etag && checked_->from == from && checked_->end == kept_size_) {
        return true;
    }
    if (cycle_->begins_to_fetch()) {
        outbox_.add([keep = self(), cycle = WeakCycle(cycle_), key = committed_key(), etag = committed_->etag, from,
                     end = kept_size_] {
            fetch_checksums(keep->environment_.store, key, etag, from, end,
                            [keep, cycle, key](Result<std::shared_ptr<const BlockChecksums>> checksums) {
                                keep->resume(cycle, [&](UploadCycle& present) REQUIRES(keep->mutex_) {
                                    present.has_fetched();
                                    keep->committed_checked(key, std::move(checksums));
                                });
                            });
        });
    }
    return false;
}

void FileWriterImpl::committed_checked(const std::string& key,
                                       Result<std::shared_ptr<const BlockChecksums>> checksums) {
    if (checksums) {
        checked_ = std::move(*checksums);
    } else if (!has_moved(key)) {
        fail(about_this_file(std::move(checksums.error())));
    }
}

void FileWriterImpl::begin_cycle(bool sends_all) {
    group_->enter(this, self());
    const bool equal_parts = environment_.config.equal_parts;
    CycleStart start;
    start.encoder = equal_parts ? environment_.codec.plain_encoder() : environment_.codec.encoder(key_);
    if (kept_size_ > 0 && !sends_all) {
        start.copy = plan_kept_copy(*committed_frames_, kept_size_, group_->plan());
    }
    const std::uint64_t from = start.copy.fetch_from;
    if (!start.copy.pieces.empty()) {
        start.stored_begin = committed_frames_->plain() ? from : committed_frames_->stored_offset(from / kFrameSize);
    }
    if (!start.copy.pieces.empty() || !kept_runs_.empty()) {
        start.encoder = committed_frames_->encoder;
        start.records = committed_frames_->records;
        start.records.resize(std::min<std::size_t>(start.records.size(), from / kFrameSize));
    }
    start.known_size = size_ > kept_size_ ? size_ : 0;
    const FileRange* run = next_run(from);
    start.next_copy = run != nullptr ? run->offset : 0;
    cycle_->begin(std::move(start));
}

void FileWriterImpl::fetch_block() {
    if (!cycle_->begins_to_fetch()) {
        return;
    }
    const std::uint64_t offset = cycle_->end();
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(BufferPool::kPayloadSize, kept_size_ - offset));
    KeptBlock::Source source{{committed_key(), committed_->etag}, committed_->size, committed_frames_, checked_};
    const WeakCycle cycle(cycle_);
    auto block = std::make_shared<KeptBlock>(
        environment_, std::move(source), offset, size, [keep = self(), cycle] { return keep->committed_place(cycle); },
        [keep = self(), cycle](KeptBlock& here, const Status& status) {
            keep->resume(cycle, [&](UploadCycle&) REQUIRES(keep->mutex_) { keep->block_here(here, status); });
        });
    outbox_.add([block = std::move(block)] { block->fetch(); });
}

std::optional<KeptBlock::Place> FileWriterImpl::committed_place(const WeakCycle& cycle) const {
    const MutexLock lock(mutex_);
    if (!is_current(cycle)) {
        return std::nullopt;
    }
    return KeptBlock::Place{committed_key(), committed_->etag};
}

void FileWriterImpl::block_here(KeptBlock& block, const Status& status) {
    cycle_->has_fetched();
    if (!status) {
        fail(status.error());
        return;
    }
    const ByteSpan data = block.bytes();
    Slice slice = cycle_->keep(block.take_buffer(), data);
    if (when_fetched_) {
        outbox_.add([told = when_fetched_, offset = block.offset(), slice] { told(offset, slice); });
    }
    accept(std::move(slice));
}

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
