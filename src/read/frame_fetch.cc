// SPDX-License-Identifier: Apache-2.0
#include "read/frame_fetch.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/text.h"
#include "read/block_cache.h"
#include "read/block_fetch.h"
#include "read/reference_read.h"
#include "read/seek_table.h"

namespace ckptfs {

namespace {

// Ends the run when the last fetch of its frames releases it.
class RunInProgress {
public:
    RunInProgress(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version, std::shared_ptr<BlockRun> run)
        : environment_(environment), version_(std::move(version)), run_(std::move(run)) {}
    ~RunInProgress() { environment_.cache.finish(*run_, error_); }
    RunInProgress(const RunInProgress&) = delete;
    RunInProgress& operator=(const RunInProgress&) = delete;

    void fail(const Error& error) {
        if (version_is_gone(error)) {
            environment_.cache.mark_gone(*version_, error);
        }
        const MutexLock lock(mutex_);
        if (!error_) {
            error_ = error;
        }
    }

    // A frame cannot be had. Those that wait for it fail at once: among them may be a frame of this run that refers to
    // it, without which the run does not end.
    void fail(const std::shared_ptr<CachedBlock>& block, const Error& error) {
        fail(error);
        environment_.cache.fail(*run_, block, error);
    }

    [[nodiscard]] ReadEnvironment& environment() const { return environment_; }
    [[nodiscard]] const CachedVersion& version() const { return *version_; }
    [[nodiscard]] const std::shared_ptr<CachedVersion>& shared_version() const { return version_; }
    [[nodiscard]] const std::vector<std::shared_ptr<CachedBlock>>& blocks() const { return run_->blocks; }
    [[nodiscard]] bool referenced() const { return run_->referenced; }
    [[nodiscard]] bool abandoned() const { return run_->abandoned.load(std::memory_order_relaxed); }

private:
    ReadEnvironment& environment_;
    const std::shared_ptr<CachedVersion> version_;
    const std::shared_ptr<BlockRun> run_;
    Mutex mutex_;
    std::optional<Error> error_ GUARDED_BY(mutex_);
};

struct WantedFrame {
    std::shared_ptr<CachedBlock> block;
    Frame frame;
};

// Whether the frame can be the block's: what the object's own table says is not trusted.
bool fits(const WantedFrame& wanted) {
    return wanted.frame.offset == wanted.block->offset && wanted.frame.size == wanted.block->size &&
           wanted.frame.stored_size > 0 && wanted.frame.stored_size <= wanted.block->stored.size();
}

using Table = std::shared_ptr<const FrameLayout>;

// Fetches the block once more, by a table that is read again; fails with `why` if that says the same as `first`.
void fetch_by_new_table(const std::shared_ptr<RunInProgress>& run, const Table& first,
                        const std::shared_ptr<CachedBlock>& block, Error why);

// Fetches frames that are adjacent in the object by one request.
class FrameFetch : public std::enable_shared_from_this<FrameFetch> {
public:
    enum class Attempt { kFirst, kSecond, kByNewTable };

    FrameFetch(std::shared_ptr<RunInProgress> run, std::vector<WantedFrame> frames, Table table, Attempt attempt)
        : run_(std::move(run)),
          frames_(std::move(frames)),
          second_attempt_(attempt != Attempt::kFirst),
          has_new_table_(attempt == Attempt::kByNewTable),
          table_(std::move(table)) {}

    void start() {
        const Frame& first = frames_.front().frame;
        const Frame& last = frames_.back().frame;
        GetRequest request = run_->version().request(
            ByteRange{first.stored_offset, last.stored_offset + last.stored_size - first.stored_offset});
        request.on_body = [self = shared_from_this()](ByteSpan bytes) { return self->take(bytes); };
        run_->environment().store.get(std::move(request), [self = shared_from_this()](Result<GetResponse> result) {
            self->end(std::move(result));
        });
    }

    // For frames whose stored bytes are in memory already.
    void decode_from(const Payload& stored) {
        std::uint64_t offset = 0;
        for (WantedFrame& wanted : frames_) {
            const std::uint64_t size = wanted.frame.stored_size;
            decode(std::move(wanted), stored.subrange(offset, size));
            offset += size;
        }
    }

private:
    bool take(ByteSpan bytes) {
        if (run_->abandoned()) {
            return false;
        }
        received_ += bytes.size();
        while (!bytes.empty()) {
            if (current_ == frames_.size()) {
                return false;
            }
            WantedFrame& wanted = frames_[current_];
            const std::size_t size = std::min<std::uint64_t>(bytes.size(), wanted.frame.stored_size - filled_);
            std::memcpy(wanted.block->stored.data() + filled_, bytes.data(), size);
            bytes = bytes.subspan(size);
            filled_ += size;
            if (filled_ < wanted.frame.stored_size) {
                continue;
            }
            filled_ = 0;
            ++current_;
            // A second attempt waits for the end of the request, whose ID an error names.
            if (!second_attempt_) {
                decode_stored(std::move(wanted));
            }
        }
        return true;
    }

    void end(Result<GetResponse> result) {
        run_->environment().cache.count_fetched(received_);
        if (run_->abandoned()) {
            return;
        }
        if (!result) {
            const bool is_out_of_range = is_range_outside(result.error());
            missed(read_error(std::move(result).error(), run_->version().key), is_out_of_range);
            return;
        }
        if (current_ < frames_.size()) {
            Error error;
            error.request_id = result->request_id;
            error.message = format("{}: the store's answer ended before the frame at offset {} was complete",
                                   run_->version().key, frames_[current_].frame.offset);
            missed(error, true);
            return;
        }
        if (second_attempt_) {
            request_id_ = result->request_id;
            decode_stored(std::move(frames_.front()));
        }
    }

    // Handles the frames that did not arrive; if `is_misplaced`, they may lie elsewhere.
    void missed(const Error& error, bool is_misplaced) {
        // A second attempt has not decoded its frame either.
        for (std::size_t index = second_attempt_ ? 0 : current_; index < frames_.size(); ++index) {
            const std::shared_ptr<CachedBlock>& block = frames_[index].block;
            if (!is_misplaced || has_new_table_) {
                run_->fail(block, error);
            } else {
                fetch_by_new_table(run_, table_, block, error);
            }
        }
    }

    void decode_stored(WantedFrame wanted) {
        const ByteSpan bytes = wanted.block->stored.bytes().first(wanted.frame.stored_size);
        Payload stored;
        stored.append(Slice{wanted.block, bytes});
        decode(std::move(wanted), std::move(stored));
    }

    void decode(WantedFrame wanted, Payload stored) {
        run_->environment().executor.post_urgent(
            [self = shared_from_this(), wanted = std::move(wanted), stored = std::move(stored)]() mutable {
                auto references = self->table_->references(wanted.frame, stored);
                if (!references) {
                    stored = Payload{};
                    self->decode_failed(std::move(wanted), references.error());
                } else if (references->empty()) {
                    wanted.block->refers.store(false);
                    self->decode_with(std::move(wanted), std::move(stored), Payload());
                } else {
                    self->follow(std::move(*references), std::move(wanted), std::move(stored));
                }
            });
    }

    void follow(std::vector<FileRange> references, WantedFrame wanted, Payload stored) {
        if (run_->referenced()) {
            stored = Payload{};
            const Error why = refers_further(run_->version().key, wanted.frame.offset);
            decode_failed(std::move(wanted), why);
            return;
        }
        wanted.block->refers.store(true);
        read_references(run_->environment(), run_->shared_version(), std::move(references),
                        [self = shared_from_this(), wanted = std::move(wanted),
                         stored = std::move(stored)](Result<Payload> referenced) mutable {
                            if (referenced) {
                                self->decode_with(std::move(wanted), std::move(stored), std::move(*referenced));
                                return;
                            }
                            stored = Payload{};
                            self->references_failed(std::move(wanted), std::move(referenced.error()));
                        });
    }

    // Either the frames that it refers to are damaged, or its own references are.
    void references_failed(WantedFrame wanted, Error error) {
        if (error.damaged && !second_attempt_) {
            decode_failed(std::move(wanted), error);
            return;
        }
        error.message = format("{} (the frame at offset {} needs it)", error.message, wanted.frame.offset);
        run_->fail(wanted.block, error);
    }

    // On the executor.
    void decode_with(WantedFrame wanted, Payload stored, Payload referenced) {
        const Status decoded = table_->decode(wanted.frame, stored, referenced, wanted.block->bytes());
        stored = Payload{};
        referenced = Payload{};
        if (decoded) {
            wanted.block->stored.reset();
            wanted.block->filled.store(wanted.block->size);
            keep_on_disk(run_->version(), wanted.block);
            run_->environment().cache.filled(std::move(wanted.block));
            return;
        }
        decode_failed(std::move(wanted), decoded.error());
    }

    void decode_failed(WantedFrame wanted, const Error& why) {
        if (!second_attempt_) {
            std::vector<WantedFrame> again;
            again.push_back(std::move(wanted));
            std::make_shared<FrameFetch>(run_, std::move(again), table_, Attempt::kSecond)->start();
            return;
        }
        Error error;
        error.errno_value = EIO;
        error.damaged = true;
        error.request_id = request_id_;
        error.message = format("{}: damaged at offset {} (request {}), also when fetched again: {}",
                               run_->version().key, wanted.frame.offset, request_id_, why.message);
        if (has_new_table_) {
            run_->fail(wanted.block, error);
        } else {
            fetch_by_new_table(run_, table_, wanted.block, std::move(error));
        }
    }

    const std::shared_ptr<RunInProgress> run_;
    std::vector<WantedFrame> frames_;
    const bool second_attempt_;
    const bool has_new_table_;
    const Table table_;
    // The frame that is arriving, and how much of it is there.
    std::size_t current_ = 0;
    std::uint64_t filled_ = 0;
    std::uint64_t received_ = 0;
    std::string request_id_;
};

void fetch_by_new_table(const std::shared_ptr<RunInProgress>& run, const Table& first,
                        const std::shared_ptr<CachedBlock>& block, Error why) {
    read_table_again(
        run->environment(), run->shared_version(), first, block->offset,
        [run, block, why = std::move(why)](const Table& table) {
            WantedFrame wanted{block, table == nullptr ? Frame() : table->frame_at(block->offset)};
            if (table == nullptr || !fits(wanted)) {
                run->fail(block, why);
                return;
            }
            std::vector<WantedFrame> frames;
            frames.push_back(std::move(wanted));
            std::make_shared<FrameFetch>(run, std::move(frames), table, FrameFetch::Attempt::kByNewTable)->start();
        });
}

void fetch_frames(const std::shared_ptr<RunInProgress>& progress, const Table& table) {
    std::vector<std::vector<WantedFrame>> groups;
    std::vector<std::shared_ptr<CachedBlock>> misfits;
    for (const std::shared_ptr<CachedBlock>& block : progress->blocks()) {
        // The block has been filled already.
        if (block == nullptr) {
            continue;
        }
        WantedFrame wanted{block, table->frame_at(block->offset)};
        if (!fits(wanted)) {
            misfits.push_back(block);
            continue;
        }
        const bool adjacent =
            !groups.empty() && groups.back().back().frame.stored_offset + groups.back().back().frame.stored_size ==
                                   wanted.frame.stored_offset;
        if (!adjacent) {
            groups.emplace_back();
        }
        groups.back().push_back(std::move(wanted));
    }
    const CachedVersion& version = progress->version();
    for (const std::shared_ptr<CachedBlock>& block : misfits) {
        Error error;
        error.message = format("{}: the seek table is damaged at offset {}", version.key, block->offset);
        fetch_by_new_table(progress, table, block, std::move(error));
    }
    for (std::vector<WantedFrame>& group : groups) {
        const Frame first = group.front().frame;
        const Frame last = group.back().frame;
        const std::uint64_t size = last.stored_offset + last.stored_size - first.stored_offset;
        const auto fetch = std::make_shared<FrameFetch>(progress, std::move(group), table, FrameFetch::Attempt::kFirst);
        if (const Payload stored = progress->environment().cache.stored_tail(version, first.stored_offset, size);
            !stored.empty()) {
            fetch->decode_from(stored);
        } else {
            fetch->start();
        }
    }
}

}  // namespace

void start_frame_fetch(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version,
                       std::shared_ptr<BlockRun> run) {
    const auto progress = std::make_shared<RunInProgress>(environment, version, std::move(run));
    with_table(environment, version, [progress](const Result<Table>& table) {
        if (table) {
            fetch_frames(progress, *table);
        } else {
            progress->fail(read_error(table.error(), progress->version().key));
        }
    });
}

}  // namespace ckptfs
