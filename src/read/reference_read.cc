// SPDX-License-Identifier: Apache-2.0
#include "read/reference_read.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/range_fetch.h"
#include "base/text.h"
#include "read/block_cache.h"
#include "read/block_fetch.h"
#include "read/seek_table.h"

namespace ckptfs {

using Done = std::function<void(Result<Payload>)>;

Error refers_further(const std::string& key, std::uint64_t offset) {
    return damage(format("{}: damaged: the frame at offset {} refers to others, and is referred to", key, offset))
        .value();
}

class DirectRead : public std::enable_shared_from_this<DirectRead> {
public:
    DirectRead(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version, std::vector<FileRange> ranges,
               Done done)
        : environment_(environment), version_(std::move(version)), ranges_(std::move(ranges)), done_(std::move(done)) {}

    // `ended` gets the error if the store could not be reached.
    using Ended = std::function<void(const std::optional<Error>& unreachable)>;
    void start(Ended ended) {
        ended_ = std::move(ended);
        with_table(environment_, version_, [self = shared_from_this()](const auto& table) {
            if (table) {
                self->first_table_ = self->table_ = *table;
                self->next();
            } else {
                self->end(failure(read_error(table.error(), self->version_->key)));
            }
        });
    }
    // Called instead of start().
    void fail(const Error& error) { std::exchange(done_, nullptr)(failure(error)); }

private:
    // Takes what the frame at hand has of the ranges, then fetches the next, until there is nothing left.
    void next() {
        while (current_ < ranges_.size()) {
            const FileRange& range = ranges_[current_];
            const std::uint64_t at = range.offset + taken_;
            const Frame frame = table_->frame_at(at);
            if (!decoded_ || decoded_->index != frame.index) {
                fetch(frame);
                return;
            }
            const std::uint64_t end = std::min(range.end(), frame.offset + frame.size);
            bytes_.append(raw_, at - frame.offset, end - at);
            taken_ = end - range.offset;
            if (end == range.end()) {
                ++current_;
                taken_ = 0;
            }
        }
        end(Payload::from_string(std::move(bytes_)));
    }

    void fetch(const Frame& frame) {
        decoded_.reset();
        if (frame.stored_size == 0) {
            fetched_again_ = true;
            damaged(frame,
                    damage(format("{}: the seek table is damaged at offset {}", version_->key, frame.offset)).value());
            return;
        }
        fetch_range(environment_.store, version_->key, version_->etag,
                    ByteRange{frame.stored_offset, frame.stored_size, false},
                    [self = shared_from_this(), frame](Result<FetchedRange> fetched) {
                        self->environment_.executor.post_urgent([self, frame, fetched = std::move(fetched)]() mutable {
                            if (fetched) {
                                self->environment_.cache.count_fetched(fetched->bytes.size());
                                self->decode(frame, fetched->bytes);
                            } else {
                                self->end(failure(read_error(std::move(fetched.error()), self->version_->key)));
                            }
                        });
                    });
    }

    void decode(const Frame& frame, const Payload& stored) {
        const FrameLayout& layout = *table_;
        const auto references = layout.references(frame, stored);
        if (!references || !references->empty()) {
            damaged(frame, references ? refers_further(version_->key, frame.offset) : references.error());
            return;
        }
        raw_.resize(frame.size);
        if (const Status decoded = layout.decode(frame, stored, Payload(), std::as_writable_bytes(std::span(raw_)));
            !decoded) {
            damaged(frame, decoded.error());
            return;
        }
        decoded_ = frame;
        fetched_again_ = false;
        next();
    }

    // Perhaps only damaged in transit.
    void damaged(const Frame& frame, Error why) {
        why.damaged = true;
        if (!std::exchange(fetched_again_, true)) {
            fetch(frame);
        } else if (table_ != first_table_) {
            end(failure(std::move(why)));
        } else {
            read_table_again(environment_, version_, first_table_, frame.offset,
                             [self = shared_from_this(), frame, why](std::shared_ptr<const FrameLayout> table) {
                                 if (table == nullptr) {
                                     self->end(failure(why));
                                 } else {
                                     self->table_ = std::move(table);
                                     self->fetch(self->table_->frame_at(frame.offset));
                                 }
                             });
        }
    }

    void end(Result<Payload> result) {
        raw_ = std::string();
        const auto ended = std::exchange(ended_, nullptr);
        std::optional<Error> unreachable;
        if (!result && result.error().retryable) {
            unreachable = result.error();
        }
        std::exchange(done_, nullptr)(std::move(result));
        ended(unreachable);
    }

    ReadEnvironment& environment_;
    const std::shared_ptr<CachedVersion> version_;
    std::shared_ptr<const FrameLayout> first_table_;
    // The table in use; another one than `first_table_` once that was read again.
    std::shared_ptr<const FrameLayout> table_;
    const std::vector<FileRange> ranges_;
    Done done_;
    Ended ended_;
    // Index of the range that is being read, and how many of its bytes have been read.
    std::size_t current_ = 0;
    std::uint64_t taken_ = 0;
    std::string bytes_;
    // The frame whose bytes `raw_` holds.
    std::optional<Frame> decoded_;
    std::string raw_;
    // The current frame was damaged when it was first fetched.
    bool fetched_again_ = false;
};

void DirectReads::enqueue(std::shared_ptr<DirectRead> read) {
    {
        const MutexLock lock(mutex_);
        reads_.push_back(std::move(read));
        if (reads_.size() > 1) {
            return;
        }
    }
    go_on();
}

void DirectReads::go_on() {
    std::shared_ptr<DirectRead> first;
    {
        const MutexLock lock(mutex_);
        first = reads_.front();
        began_with_ = reads_.size();
    }
    first->start([this](const std::optional<Error>& unreachable) {
        if (unreachable) {
            fail_waiting(*unreachable);
        }
        {
            const MutexLock lock(mutex_);
            reads_.pop_front();
            if (reads_.empty()) {
                return;
            }
        }
        go_on();
    });
}

void DirectReads::fail_waiting(const Error& error) {
    std::vector<std::shared_ptr<DirectRead>> waited;
    {
        const MutexLock lock(mutex_);
        const auto first = reads_.begin() + 1;
        const auto end = reads_.begin() + static_cast<std::ptrdiff_t>(began_with_);
        waited.assign(first, end);
        reads_.erase(first, end);
    }
    for (const std::shared_ptr<DirectRead>& each : waited) {
        each->fail(error);
    }
}

namespace {

// Reads all ranges through the cache; calls `done` when the last of them is there.
class CachedRead : public std::enable_shared_from_this<CachedRead> {
public:
    CachedRead(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version, std::vector<FileRange> ranges,
               Done done)
        : environment_(environment),
          version_(std::move(version)),
          ranges_(std::move(ranges)),
          done_(std::move(done)),
          payloads_(ranges_.size()),
          missing_(ranges_.size()) {}

    void start() {
        // Once the last is on its way, `ranges_` belongs to the thread that settles it.
        const std::size_t count = ranges_.size();
        for (std::size_t i = 0; i < count; ++i) {
            auto read = std::make_shared<PendingRead>(
                environment_.executor, ranges_[i].offset, ranges_[i].size,
                [self = shared_from_this(), i](Result<Payload> bytes) { self->here(i, std::move(bytes)); });
            const auto fetch = [self = shared_from_this()](std::shared_ptr<BlockRun> run) {
                run->referenced = true;
                start_fetch(self->environment_, self->version_, std::move(run));
            };
            if (!environment_.cache.read_now(version_, std::move(read), fetch)) {
                no_memory_ = true;
                settle();
            }
        }
    }

private:
    void here(std::size_t i, Result<Payload> bytes) {
        if (bytes && environment_.cache.refers(*version_, ranges_[i])) {
            bytes = failure(refers_further(version_->key, ranges_[i].offset));
        }
        if (bytes) {
            payloads_[i] = std::move(*bytes);
        } else {
            const MutexLock lock(mutex_);
            error_ = std::move(bytes.error());
        }
        settle();
    }

    void settle() {
        if (missing_.fetch_sub(1) > 1) {
            return;
        }
        // No other range is under way.
        std::optional<Error> error;
        {
            const MutexLock lock(mutex_);
            error = std::move(error_);
        }
        if (error) {
            done_(failure(std::move(*error)));
        } else if (no_memory_) {
            payloads_.clear();
            environment_.cache.direct_reads().enqueue(
                std::make_shared<DirectRead>(environment_, version_, std::move(ranges_), std::move(done_)));
        } else {
            Payload all;
            for (Payload& payload : payloads_) {
                all.append(std::move(payload));
            }
            done_(std::move(all));
        }
    }

    ReadEnvironment& environment_;
    const std::shared_ptr<CachedVersion> version_;
    std::vector<FileRange> ranges_;
    Done done_;
    std::vector<Payload> payloads_;
    std::atomic<std::size_t> missing_;
    std::atomic<bool> no_memory_{false};
    Mutex mutex_;
    std::optional<Error> error_ GUARDED_BY(mutex_);
};

}  // namespace

void read_references(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version,
                     std::vector<FileRange> ranges, std::function<void(Result<Payload>)> done) {
    std::make_shared<CachedRead>(environment, std::move(version), std::move(ranges), std::move(done))->start();
}

}  // namespace ckptfs
