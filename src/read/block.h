// SPDX-License-Identifier: Apache-2.0
// What the block cache and the fetches share: blocks, runs of adjacent blocks under one request, and the version of an
// object they belong to.
//
// A block's buffer is written by one fetch alone, front to back; `filled` says how much of it may be read. Everything
// else is guarded by the cache's mutex, unless it is constant or atomic.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/bytes.h"
#include "ckptfs/clock.h"
#include "ckptfs/codec.h"
#include "ckptfs/file_cache.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "read/part_table.h"
#include "read/unknown_layout.h"

namespace ckptfs {

class PendingRead;
struct BlockRun;
struct CachedVersion;

struct CachedBlock {
    struct Waiter {
        std::shared_ptr<PendingRead> read;
        std::size_t piece = 0;
        // Within the block.
        std::uint32_t begin = 0;
        std::uint32_t end = 0;
    };
    // Which of the cache's lists holds a block that is wholly there.
    enum class Place : std::uint8_t { kNone, kUnread, kUsed, kConsumed };

    static constexpr std::uint32_t kNoWaiter = std::numeric_limits<std::uint32_t>::max();

    CachedBlock(std::uint64_t offset_in_file, std::uint32_t byte_count, Buffer memory, std::atomic<std::size_t>& count)
        : offset(offset_in_file), size(byte_count), buffer(std::move(memory)), held(count) {
        ++held;
    }
    ~CachedBlock() { --held; }
    CachedBlock(const CachedBlock&) = delete;
    CachedBlock& operator=(const CachedBlock&) = delete;

    [[nodiscard]] MutableByteSpan bytes() const { return buffer.bytes().first(size); }

    const std::uint64_t offset;
    const std::uint32_t size;
    const Buffer buffer;
    std::atomic<std::size_t>& held;
    // What is to be decoded into `buffer`; belongs to the fetch. Both are taken before a fetch begins, so that
    // decoding never waits for memory.
    Buffer stored;

    std::atomic<std::uint32_t> filled{0};
    // The least `filled` that some waiter needs.
    std::atomic<std::uint32_t> wake_at{kNoWaiter};
    // Slices handed out and not yet dropped; grows only under the cache's mutex.
    std::atomic<std::uint32_t> pins{0};

    std::vector<Waiter> waiters;
    bool was_read = false;
    // Its frame refers to others, so that none may refer to it. Set before it is filled.
    std::atomic<bool> refers{false};
    // Empty once the block was given up or has failed: it is then no longer found.
    CachedVersion* version = nullptr;
    BlockRun* run = nullptr;
    Place place = Place::kNone;
    std::list<std::shared_ptr<CachedBlock>>::iterator position;
    // When it came to the end of its list.
    SteadyTime placed_at{};
};

// Adjacent blocks that one request fetches.
struct BlockRun {
    std::vector<std::shared_ptr<CachedBlock>> blocks;
    bool read_ahead = false;
    // How many reads had come to the cache's queue before it began.
    std::uint64_t turn = 0;
    // Another frame refers to these. Set before the fetch begins.
    bool referenced = false;
    // No request was needed. Set before it is finished.
    bool is_kept = false;
    // Some read waits for it, or several streams want it (cache's mutex).
    bool wanted = false;
    // No longer wanted: the fetch may end early.
    std::atomic<bool> abandoned{false};
};

// A reading of a version's seek table (seek_table.h): one for all that ask.
struct SeekTable {
    using Done = std::function<void(const Result<std::shared_ptr<const FrameLayout>>&)>;

    Mutex mutex;
    // Null until it has been read.
    std::shared_ptr<const FrameLayout> layout GUARDED_BY(mutex);
    bool is_under_way GUARDED_BY(mutex) = false;
    std::vector<Done> waiting GUARDED_BY(mutex);
};

// Where the parts of a version begin, once what tells it was in memory: one table for all handles.
class KnownParts {
public:
    // Null where none is known. `find` is called without a lock, until it returns some or has been called a few times.
    [[nodiscard]] std::shared_ptr<const PartOffsets> get(const std::function<PartOffsets()>& find) {
        {
            const MutexLock lock(mutex_);
            if (parts_ != nullptr || tries_ == kTries) {
                return parts_;
            }
            ++tries_;
        }
        PartOffsets found = find();
        const MutexLock lock(mutex_);
        if (parts_ == nullptr && !found.empty()) {
            parts_ = std::make_shared<const PartOffsets>(std::move(found));
        }
        return parts_;
    }

private:
    // The pieces of a table may come one by one.
    static constexpr int kTries = 4;

    Mutex mutex_;
    std::shared_ptr<const PartOffsets> parts_ GUARDED_BY(mutex_);
    int tries_ GUARDED_BY(mutex_) = 0;
};

struct CachedVersion {
    CachedVersion(const ObjectInfo& object, std::shared_ptr<const FrameLayout> frames)
        : key(object.key),
          etag(object.etag),
          stored_size(object.size),
          modified(object.last_modified),
          layout(std::move(frames)),
          size(layout->size()),
          lacks_table(dynamic_cast<const UnknownLayout*>(layout.get()) != nullptr) {}
    // What each of its requests asks for.
    [[nodiscard]] GetRequest request(const ByteRange& range) const {
        GetRequest request;
        request.key = key;
        request.range = range;
        request.if_match = etag;
        request.if_size = stored_size;
        request.if_modified = modified;
        return request;
    }

    const std::string key;
    const std::string etag;
    // Of the object as it is stored; the time is zero where no answer told it.
    const std::uint64_t stored_size;
    const WallTime modified;
    const std::shared_ptr<const FrameLayout> layout;
    // Of the file.
    const std::uint64_t size;
    // It was opened without its seek table.
    const bool lacks_table;

    // While a block of it is fetched.
    [[nodiscard]] std::size_t buffers_per_block() const { return layout->identity() ? 1 : 2; }

    std::unordered_map<std::uint64_t, std::shared_ptr<CachedBlock>> blocks;
    // The end of a file larger than the first request, which brought it.
    std::shared_ptr<CachedBlock> tail;
    // The store no longer has it.
    std::optional<Error> gone;
    // Where it lacks its table, and where a frame does not fit that one.
    SeekTable first_table;
    SeekTable second_table;
    KnownParts parts;
    // What this node keeps of it; null where it keeps nothing. Set before the version is shared.
    std::shared_ptr<KeptFile> kept;
};

}  // namespace ckptfs
