// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/digest.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "ckptfs/store_limits.h"
#include "write/file_writer_impl.h"

namespace ckptfs {

bool FileWriterImpl::cycle_ready() {
    if (!cycle_->begun()) {
        if (!committed_is_known() || !copies_are_known() || !committed_is_checked()) {
            return false;
        }
        begin_cycle();
    }
    if (cycle_->end() >= kept_size_) {
        return true;
    }
    if (!cycle_->is_fetching()) {
        fetch_block();
    }
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
                                      std::unique_lock lock(keep->mutex_);
                                      if (keep->is_current(cycle)) {
                                          keep->cycle_->has_fetched();
                                          if (frames || !keep->has_moved(key)) {
                                              keep->know_committed(std::move(frames));
                                          }
                                      }
                                      keep->deliver(lock);
                                  });
        });
    }
    return false;
}

void FileWriterImpl::know_committed(Result<CommittedFrames> frames) {
    if (!frames) {
        fail(about_this_file(std::move(frames.error())));
        return;
    }
    committed_frames_ = std::move(*frames);
}

bool FileWriterImpl::sends_all_again() const {
    return kept_runs_.empty() && environment_.store.lacks_part_copy();
}

// Copies are planned before the first byte is sent.
bool FileWriterImpl::copies_are_known() {
    if (kept_size_ < kMinPartSize || !kept_runs_.empty() || copies_known_) {
        return true;
    }
    if (cycle_->begins_to_fetch()) {
        outbox_.add([keep = self(), cycle = WeakCycle(cycle_), key = key_] {
            keep->environment_.store.find_part_copy(key, [keep, cycle] {
                std::unique_lock lock(keep->mutex_);
                if (keep->is_current(cycle)) {
                    keep->cycle_->has_fetched();
                    keep->copies_known_ = true;
                }
                keep->deliver(lock);
            });
        });
    }
    return false;
}

void FileWriterImpl::begin_cycle() {
    group_->enter(this, self());
    const bool equal_parts = environment_.config.equal_parts;
    CycleStart start;
    start.encoder = equal_parts ? environment_.codec.plain_encoder() : environment_.codec.encoder(key_);
    if (kept_size_ > 0 && !sends_all_again()) {
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
    static_cast<void>(cycle_->begins_to_fetch());
    auto fetch = std::make_shared<Fetch>();
    fetch->key = committed_key();
    fetch->etag = committed_->etag;
    fetch->offset = cycle_->end();
    fetch->wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(BufferPool::kPayloadSize, kept_size_ - fetch->offset));
    fetch->range = ByteRange{fetch->offset, fetch->wanted, false};
    fetch->checked = checked_;
    if (!committed_frames_->plain()) {
        fetch->decoder = committed_frames_->encoder;
        fetch->frame = committed_frames_->frame_at(fetch->offset, committed_->size);
        fetch->range = fetch->frame.range;
    }
    outbox_.add([keep = self(), cycle = WeakCycle(cycle_), fetch] {
        keep->environment_.pool.take(MemoryUse::kWrite, [keep, cycle, fetch](Buffer buffer) {
            fetch->buffer = std::move(buffer);
            if (fetch->decoder == nullptr) {
                keep->get_block(cycle, fetch);
                return;
            }
            keep->environment_.pool.take(MemoryUse::kEncode, [keep, cycle, fetch](Buffer stored) {
                fetch->stored = std::move(stored);
                keep->get_block(cycle, fetch);
            });
        });
    });
}

void FileWriterImpl::get_block(const WeakCycle& cycle, const std::shared_ptr<Fetch>& fetch) {
    GetRequest request;
    request.key = fetch->key;
    request.range = fetch->range;
    request.if_match = fetch->etag;
    request.on_body = [fetch](ByteSpan bytes) {
        if (bytes.size() > fetch->range.length - fetch->filled) {
            return false;
        }
        const Buffer& target = fetch->stored ? fetch->stored : fetch->buffer;
        std::memcpy(target.data() + fetch->filled, bytes.data(), bytes.size());
        fetch->filled += bytes.size();
        return true;
    };
    environment_.store.get(std::move(request), [keep = self(), cycle, fetch](Result<GetResponse> result) {
        keep->fetched(cycle, fetch, std::move(result));
    });
}

void FileWriterImpl::fetched(const WeakCycle& cycle, const std::shared_ptr<Fetch>& fetch, Result<GetResponse> result) {
    if (!result) {
        if (follow_move(cycle, *fetch)) {
            get_block(cycle, fetch);
        } else {
            block_here(cycle, fetch, failure(std::move(result.error())));
        }
        return;
    }
    if (fetch->filled != fetch->range.length) {
        block_here(cycle, fetch,
                   failure(EIO, format("write {}: the store sent {} bytes from offset {} instead of {}",
                                       escaped(fetch->key), fetch->filled, fetch->range.offset, fetch->range.length)));
        return;
    }
    if (fetch->decoder == nullptr) {
        environment_.executor.post([keep = self(), cycle, fetch] { keep->check_block(cycle, fetch); });
        return;
    }
    environment_.executor.post([keep = self(), cycle, fetch] { keep->decode_block(cycle, fetch); });
}

// A rename removes the old name as soon as the copy is there: requests still under way to it are repeated on the copy.
bool FileWriterImpl::follow_move(const WeakCycle& cycle, Fetch& fetch) {
    const std::lock_guard lock(mutex_);
    if (!is_current(cycle) || !has_moved(fetch.key)) {
        return false;
    }
    fetch.key = committed_key();
    fetch.etag = committed_->etag;
    fetch.filled = 0;
    return true;
}

void FileWriterImpl::check_block(const WeakCycle& cycle, const std::shared_ptr<Fetch>& fetch) {
    const std::shared_ptr<const BlockChecksums> checked = fetch->checked;
    if (!checked || checked->has(fetch->offset, crc32c(fetch->buffer.bytes().first(fetch->wanted)))) {
        block_here(cycle, fetch, {});
    } else if (!std::exchange(fetch->again, true)) {
        fetch->filled = 0;
        get_block(cycle, fetch);
    } else if (checked->are_vouched_for || std::exchange(fetch->checked_again, true)) {
        block_here(cycle, fetch, failure(damaged_on_its_way(fetch->key, fetch->offset)));
    } else {
        fetch_checksums(environment_.store, fetch->key, fetch->etag, checked->from, checked->end,
                        [keep = self(), cycle, fetch](const auto& checksums) {
                            if (!checksums) {
                                keep->block_here(cycle, fetch, failure(checksums.error()));
                                return;
                            }
                            fetch->checked = *checksums;
                            keep->environment_.executor.post([keep, cycle, fetch] { keep->check_block(cycle, fetch); });
                        });
    }
}

bool FileWriterImpl::committed_is_checked() {
    const bool plain = kept_size_ > 0 && committed_frames_ && committed_frames_->plain();
    const std::uint64_t from = plain && !sends_all_again() ? plan_copy(kept_size_, group_->plan()).fetch_from : 0;
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
                                keep->committed_checked(cycle, key, std::move(checksums));
                            });
        });
    }
    return false;
}

void FileWriterImpl::committed_checked(const WeakCycle& cycle, const std::string& key,
                                       Result<std::shared_ptr<const BlockChecksums>> checksums) {
    std::unique_lock lock(mutex_);
    if (!is_current(cycle)) {
        return;
    }
    cycle_->has_fetched();
    if (checksums) {
        checked_ = std::move(*checksums);
    } else if (!has_moved(key)) {
        fail(about_this_file(std::move(checksums.error())));
    }
    deliver(lock);
}

void FileWriterImpl::decode_block(const WeakCycle& cycle, const std::shared_ptr<Fetch>& fetch) {
    Payload stored;
    stored.append(Slice{nullptr, fetch->stored.bytes().first(fetch->filled)});
    Status good;
    bool complete = false;
    if (!fetch->missing.empty()) {
        good = take_referenced(*fetch, stored);
    } else if (fetch->referenced.empty()) {
        const auto references = fetch->decoder->references(stored, fetch->frame.offset);
        complete = references && references->empty();
        if (!references) {
            good = failure(references.error());
        } else if (!complete && !fetch->frame.may_refer) {
            good = failure(EIO, "it refers to other frames, although its table says that none does");
        } else if (!complete && !find_referenced(cycle, *fetch, *references)) {
            return;
        }
    } else {
        complete = true;
    }
    if (good && !complete) {
        fetch->range = fetch->missing.empty() ? fetch->frame.range : fetch->missing.front().frame.range;
        fetch->filled = 0;
        get_block(cycle, fetch);
        return;
    }
    if (good) {
        good = fetch->decoder->decode(stored, Payload::from_string(std::move(fetch->referenced)),
                                      fetch->buffer.bytes().first(fetch->frame.size), fetch->frame.checksum);
    }
    if (!good && fetch->again) {
        good.error().message = format("write {}: what is there cannot be read at offset {}: {}", escaped(fetch->key),
                                      fetch->offset, good.error().message);
    }
    if (!good && good.error().errno_value == EIO && !std::exchange(fetch->again, true)) {
        // Damaged, perhaps only in transit.
        fetch->missing.clear();
        fetch->referenced.clear();
        fetch->range = fetch->frame.range;
        fetch->filled = 0;
        get_block(cycle, fetch);
        return;
    }
    fetch->stored.reset();
    block_here(cycle, fetch, good);
}

Status FileWriterImpl::take_referenced(Fetch& fetch, const Payload& stored) {
    const CommittedFrame frame = fetch.missing.front().frame;
    const auto references = fetch.decoder->references(stored, frame.offset);
    if (!references || !references->empty()) {
        return references ? failure(EIO, "it refers to bytes that refer to others") : failure(references.error());
    }
    const MutableByteSpan raw = fetch.buffer.bytes().first(frame.size);
    if (Status decoded = fetch.decoder->decode(stored, {}, raw, frame.checksum); !decoded) {
        return decoded;
    }
    while (!fetch.missing.empty() && fetch.missing.front().frame.offset == frame.offset) {
        fetch.referenced += as_text(ByteSpan(raw).subspan(fetch.missing.front().begin, fetch.missing.front().size));
        fetch.missing.pop_front();
    }
    return {};
}

// False where the block is no longer wanted.
bool FileWriterImpl::find_referenced(const WeakCycle& cycle, Fetch& fetch, const std::vector<FileRange>& references) {
    const std::lock_guard lock(mutex_);
    if (!is_current(cycle)) {
        return false;
    }
    for (const FileRange& range : references) {
        for (std::uint64_t at = range.offset; at < range.end();) {
            const CommittedFrame frame = committed_frames_->frame_at(at, committed_->size);
            const std::uint64_t end = std::min(range.end(), frame.offset + frame.size);
            fetch.missing.push_back({frame, at - frame.offset, end - at});
            at = end;
        }
    }
    return true;
}

void FileWriterImpl::block_here(const WeakCycle& cycle, const std::shared_ptr<Fetch>& fetch, const Status& status) {
    std::unique_lock lock(mutex_);
    if (!is_current(cycle)) {
        lock.unlock();
        return;
    }
    cycle_->has_fetched();
    if (!status) {
        fail(status.error());
    } else {
        const ByteSpan data(fetch->buffer.data(), fetch->wanted);
        Slice slice = cycle_->keep(std::move(fetch->buffer), data);
        if (when_fetched_) {
            outbox_.add([told = when_fetched_, offset = fetch->offset, slice] { told(offset, slice); });
        }
        accept(std::move(slice));
    }
    deliver(lock);
}

}  // namespace ckptfs
