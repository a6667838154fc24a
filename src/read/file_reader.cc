// SPDX-License-Identifier: Apache-2.0
#include "read/file_reader.h"

#include <algorithm>
#include <utility>

#include "base/mutex.h"
#include "base/range_fetch.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "read/block_cache.h"
#include "read/block_fetch.h"
#include "read/part_walk.h"
#include "read/pending_read.h"
#include "read/read_window.h"
#include "read/tail_request.h"
#include "read/unknown_layout.h"

namespace ckptfs {

namespace {

// 16 MiB ahead, in requests of one block: a fifth of a 2.5 GB/s link at 30 ms to the first byte.
constexpr std::uint64_t kBackgroundBlocks = 16;

std::uint64_t blocks_of(std::uint64_t size) {
    return (size + kFrameSize - 1) / kFrameSize;
}

// Looks for the file's table in what is in memory: a loader has read it before it jumps. It takes a few hundred bytes a
// part. Null if there is none.
std::shared_ptr<const PartOffsets> find_parts(BlockCache& cache, CachedVersion& version) {
    return version.parts.get([&] {
        std::string copy;
        const auto bytes_of = [&copy](const Payload& held) {
            if (held.slices().size() == 1) {
                return held.slices().front().bytes;
            }
            copy = held.to_string();
            return as_bytes(copy);
        };
        const Payload end = cache.held_end(version);
        PartOffsets records = zip_records(bytes_of(end), version.size);
        if (!records.empty()) {
            return records;
        }
        const Payload head = cache.held_head(version);
        return safetensors_tensors(bytes_of(head), version.size);
    });
}

struct HandlePlan {
    ReadPlan window;
    // Blocks where a walk over the file's parts will go on.
    std::vector<BlockSpan> steps;
};

class HandleStream final : public ReadStream {
public:
    HandleStream(BlockCache& cache, std::shared_ptr<CachedVersion> version, ReadPace pace)
        : cache_(cache),
          version_(std::move(version)),
          pace_(pace),
          held_(version_->kept != nullptr ? version_->kept->hold() : nullptr),
          window_(blocks_of(version_->size)),
          walk_(blocks_of(version_->size)) {}

    ~HandleStream() override {
        cache_.shares().leave(this);
        for (const BlockSpan& span : window_.outstanding()) {
            cache_.abandon(*version_, span);
        }
    }

    HandlePlan on_read(std::uint64_t offset, std::size_t size, Found found, const ReadEnvironment& environment) {
        HandlePlan plan;
        std::uint64_t limit = 0;
        {
            const MutexLock lock(mutex_);
            limit = cache_.shares().share(this, window_.sequential_streams(), environment.clock.now());
            if (environment.config.max_read_ahead > 0) {
                limit = std::min(limit, blocks_of(environment.config.max_read_ahead));
            }
            limit = pace_ == ReadPace::kBackground ? std::min(limit, kBackgroundBlocks) : limit;
            plan.window =
                window_.on_read(offset, size, found, limit, {cache_.is_crowded(), environment.store.slowed_to()});
        }
        const std::shared_ptr<const PartOffsets> known = plan.window.jumps ? find_parts(cache_, *version_) : nullptr;
        const MutexLock lock(mutex_);
        parts_ = known != nullptr ? known : parts_;
        // The streams before the walk keep the other half: if it took all, a fifth more would be fetched twice.
        plan.steps = walk_.on_read(offset, size, plan.window.jumps, *parts_, limit / 2);
        if (const int slowed_to = environment.store.slowed_to(); slowed_to > 0) {
            // Each step is one request.
            plan.steps.resize(std::min(plan.steps.size(), static_cast<std::size_t>(slowed_to)));
        }
        if (const std::uint64_t end = walk_.end_of_step(offset); end > 0 && plan.window.ahead.end > end) {
            plan.window.ahead.end = std::max(plan.window.ahead.begin, end);
            window_.not_fetched(plan.window, plan.window.ahead.end, false);
        }
        return plan;
    }

    // What was in memory may not have been kept, because the disk was too slow then.
    void keep_in_background(std::uint64_t offset, const Payload& read) const {
        const bool is_frame = offset % kFrameSize == 0 && read.slices().size() == 1 &&
                              (read.size() == kFrameSize || offset + read.size() == version_->size);
        if (pace_ == ReadPace::kBackground && version_->kept != nullptr && is_frame) {
            version_->kept->keep(offset / kFrameSize, read.slices().front());
        }
    }

    void steps_not_fetched() {
        const MutexLock lock(mutex_);
        walk_.not_fetched();
    }

    void not_fetched(const ReadPlan& plan, const BlockCache::Claim& claim) {
        const MutexLock lock(mutex_);
        window_.not_fetched(plan, claim.end, claim.memory_is_short);
    }

private:
    BlockCache& cache_;
    const std::shared_ptr<CachedVersion> version_;
    const ReadPace pace_;
    const std::shared_ptr<void> held_;
    Mutex mutex_;
    ReadWindow window_ GUARDED_BY(mutex_);
    PartWalk walk_ GUARDED_BY(mutex_);
    std::shared_ptr<const PartOffsets> parts_ GUARDED_BY(mutex_) = std::make_shared<const PartOffsets>();
};

class VersionReader final : public FileReader, public std::enable_shared_from_this<VersionReader> {
public:
    VersionReader(ReadEnvironment& environment, ObjectInfo object, std::shared_ptr<CachedVersion> version)
        : environment_(environment), object_(std::move(object)), version_(std::move(version)) {}

    std::shared_ptr<ReadStream> open_stream(ReadPace pace) override {
        return std::make_shared<HandleStream>(environment_.cache, version_, pace);
    }

    void read(const std::shared_ptr<ReadStream>& stream, std::uint64_t offset, std::size_t size,
              ReadDone done) override {
        if (size == 0 || offset >= version_->size) {
            done(Payload{});
            return;
        }
        size = static_cast<std::size_t>(std::min<std::uint64_t>(size, version_->size - offset));
        BlockCache::Lookup lookup = environment_.cache.try_read(*version_, offset, size);
        auto& handle = static_cast<HandleStream&>(*stream);
        if (lookup.payload) {
            handle.keep_in_background(offset, *lookup.payload);
        }
        if (lookup.from_tail) {
            done(std::move(*lookup.payload));
            return;
        }
        const HandlePlan plan = handle.on_read(offset, size, lookup.found, environment_);
        if (lookup.payload) {
            done(std::move(*lookup.payload));
        } else {
            auto pending = std::make_shared<PendingRead>(environment_.executor, offset, size, std::move(done));
            environment_.cache.read(version_, std::move(pending), fetcher());
        }
        follow(handle, plan.window);
        for (const BlockSpan& step : plan.steps) {
            const bool is_slowed = environment_.store.slowed_to() > 0;
            const std::uint64_t at_once = is_slowed ? step.count() : ReadWindow::kMaxBlocksPerRequest;
            if (fetch_ahead(step, at_once).end < step.end) {
                handle.steps_not_fetched();
                break;
            }
        }
    }

    void is_there() override { environment_.cache.mark_there(*version_); }
    void open_checked(std::function<void(int)> done) override {
        version_->kept != nullptr ? version_->kept->open_checked(std::move(done)) : done(-1);
    }
    [[nodiscard]] const ObjectInfo& object() const override { return object_; }
    [[nodiscard]] bool checks_bytes() const override { return !version_->layout->identity(); }
    [[nodiscard]] std::uint64_t size() const override { return version_->size; }

private:
    BlockCache::Fetch fetcher() {
        return [self = shared_from_this()](std::shared_ptr<BlockRun> run) {
            start_fetch(self->environment_, self->version_, std::move(run));
        };
    }

    void follow(HandleStream& handle, const ReadPlan& plan) {
        if (!plan.consumed.empty()) {
            environment_.cache.consumed(*version_, plan.consumed);
        }
        for (const BlockSpan& span : plan.abandoned) {
            environment_.cache.abandon(*version_, span);
        }
        if (plan.ahead.empty()) {
            return;
        }
        const BlockCache::Claim claim = fetch_ahead(plan.ahead, plan.blocks_per_request);
        if (claim.end < plan.ahead.end) {
            handle.not_fetched(plan, claim);
        }
    }

    BlockCache::Claim fetch_ahead(BlockSpan span, std::uint64_t blocks_per_request) {
        BlockCache::Claim claim = environment_.cache.claim_ahead(*version_, span, blocks_per_request);
        for (std::shared_ptr<BlockRun>& run : claim.runs) {
            start_fetch(environment_, version_, std::move(run));
        }
        claim.runs.clear();
        return claim;
    }

    ReadEnvironment& environment_;
    const ObjectInfo object_;
    const std::shared_ptr<CachedVersion> version_;
};

// The slice does not own the buffer: valid while `tail` holds it.
Payload bytes_of(const ObjectTail& tail) {
    Payload bytes;
    if (tail.size > 0) {
        bytes.append(Slice{nullptr, ByteSpan(tail.buffer.data(), tail.size)});
    }
    return bytes;
}

std::shared_ptr<FileReader> make_reader(ReadEnvironment& environment, ObjectTail tail,
                                        std::shared_ptr<CachedVersion> version) {
    if (tail.size > 0) {
        environment.cache.keep_tail(*version, tail.offset, tail.size, std::move(tail.buffer));
    }
    return std::make_shared<VersionReader>(environment, std::move(tail.object), std::move(version));
}

Result<std::shared_ptr<FileReader>> read_layout(ReadEnvironment& environment, ObjectTail tail,
                                                const FetchedRange& end) {
    auto layout = environment.codec.layout_in(end.room, tail.object, end.bytes);
    if (!layout) {
        return failure(std::move(layout).error());
    }
    if (environment.codec.may_have_lost_description(tail.object, end.bytes)) {
        log_warning(format("{} is read as it is stored: {}", escaped(tail.object.key), kLostDescription));
    }
    auto version = environment.cache.version(tail.object, std::move(*layout));
    return make_reader(environment, std::move(tail), std::move(version));
}

// The table of a large file does not fit into the first request.
void make_reader_with_table(ReadEnvironment& environment, ObjectTail tail, std::uint64_t needed,
                            FileReader::Opened done) {
    const auto held = std::make_shared<ObjectTail>(std::move(tail));
    auto fetched = [&environment, held, done](Result<FetchedRange> end) {
        if (!end) {
            done(failure(read_error(std::move(end.error()), held->object.key)));
            return;
        }
        // Not on the HTTP thread: its other transfers would wait while so many entries are parsed.
        environment.executor.post_urgent([&environment, held, done, end = std::move(*end)] {
            done(read_layout(environment, std::move(*held), end));
        });
    };
    // A version that is open needs no second table; it may have been opened while this call waited for room.
    const auto is_known = [&environment, held, done] {
        auto known = environment.cache.known_container(held->object);
        if (known == nullptr) {
            return false;
        }
        done(make_reader(environment, std::move(*held), std::move(known)));
        return true;
    };
    if (is_known()) {
        return;
    }
    environment.codec.take_room(held->object, needed, [&environment, held, needed, is_known, fetched](auto room) {
        if (is_known()) {
            return;
        }
        if (room) {
            fetch_tail_in(std::move(*room), environment.store, held->object, needed, fetched);
        } else {
            fetched(failure(std::move(room.error())));
        }
    });
}

void make_reader_of_tail(ReadEnvironment& environment, ObjectTail tail, FileReader::Opened done) {
    const Payload bytes = bytes_of(tail);
    const std::uint64_t needed = environment.codec.tail_needed(tail.object, bytes).value_or(0);
    if (needed > bytes.size()) {
        make_reader_with_table(environment, std::move(tail), needed, std::move(done));
        return;
    }
    const FetchedRange end{tail.object, bytes};
    done(read_layout(environment, std::move(tail), end));
}

void open_from_tail(ReadEnvironment& environment, const std::string& key, const std::string& etag, bool again,
                    FileReader::Opened done) {
    request_tail(environment.store, environment.pool, key, etag,
                 [&environment, key, etag, again, done = std::move(done)](Result<ObjectTail> tail) {
                     if (!tail) {
                         done(failure(std::move(tail).error()));
                         return;
                     }
                     make_reader_of_tail(environment, std::move(*tail),
                                         [&environment, key, etag, again, done](auto reader) {
                                             if (!reader && reader.error().damaged && !again) {
                                                 // Damaged, perhaps only in transit.
                                                 open_from_tail(environment, key, etag, true, done);
                                             } else {
                                                 done(std::move(reader));
                                             }
                                         });
                 });
}

// The frames are on a disk: the table of where they lie in the object is fetched only for those that turn out to be
// damaged there.
void open_kept(ReadEnvironment& environment, const std::string& key, FileReader::Opened done) {
    environment.store.head(key, [&environment, key, done = std::move(done)](Result<ObjectInfo> object) {
        if (!object) {
            done(failure(std::move(object.error())));
            return;
        }
        object->key = key;
        const bool is_encoded = environment.codec.format_name(*object) != "plain";
        environment.files->whole_size(
            *object, is_encoded, [&environment, is_encoded, object = *object, done](std::optional<std::uint64_t> size) {
                Result<std::shared_ptr<const FrameLayout>> layout =
                    std::make_shared<const UnknownLayout>(size.value_or(0));
                if (!is_encoded) {
                    layout = environment.codec.layout(object, Payload());
                }
                if (!size || !layout) {
                    open_from_tail(environment, object.key, "", false, done);
                    return;
                }
                ObjectTail none;
                none.object = object;
                done(make_reader(environment, std::move(none), environment.cache.version(object, std::move(*layout))));
            });
    });
}

}  // namespace

void FileReader::open(ReadEnvironment& environment, std::string key, std::string etag, bool known_empty, Opened done) {
    if (known_empty) {
        ObjectTail empty;
        empty.object.key = std::move(key);
        empty.object.etag = std::move(etag);
        done(read_layout(environment, std::move(empty), {}));
        return;
    }
    open_from_tail(environment, key, etag, false, std::move(done));
}

void FileReader::open_latest(ReadEnvironment& environment, const std::string& key, const std::string& likely_etag,
                             Opened done) {
    if (environment.files != nullptr && environment.files->may_have(likely_etag)) {
        open_kept(environment, key, std::move(done));
    } else {
        open_from_tail(environment, key, "", false, std::move(done));
    }
}

}  // namespace ckptfs
