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
        // Byte offsets within the block.
        std::uint32_t begin = 0;
        std::uint32_t end = 0;
    };
    // The list of EvictionOrder that holds a full block.
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
    // The encoded frame that is decoded into `buffer`; only the fetch uses it. Both buffers are taken before the fetch
    // begins, so that decoding never waits for memory.
    Buffer stored;

    std::atomic<std::uint32_t> filled{0};
    // The smallest value of `filled` that some waiter needs.
    std::atomic<std::uint32_t> wake_at{kNoWaiter};
    // Slices handed out and not yet dropped; grows only under the cache's mutex.
    std::atomic<std::uint32_t> pins{0};

    std::vector<Waiter> waiters;
    bool was_read = false;
    // The block's frame refers to others, so no frame may refer to it. Set before the block is filled.
    std::atomic<bool> refers{false};
    // Null once the block has been evicted or its fetch was abandoned or failed: lookups no longer find it.
    CachedVersion* version = nullptr;
    BlockRun* run = nullptr;
    Place place = Place::kNone;
    std::list<std::shared_ptr<CachedBlock>>::iterator position;
    // When the block was last moved to the young end of a list.
    SteadyTime placed_at{};
};

// Adjacent blocks that one request fetches.
struct BlockRun {
    std::vector<std::shared_ptr<CachedBlock>> blocks;
    bool read_ahead = false;
    // How many reads had ever joined the cache's queue when this run was made.
    std::uint64_t turn = 0;
    // The blocks are fetched because another frame refers to them. Set before the fetch begins.
    bool referenced = false;
    // The blocks came from the node's disk, without a request. Set before the run is finished.
    bool is_kept = false;
    // A read waits for one of the blocks, or another stream wants them, too; guarded by the cache's mutex.
    bool wanted = false;
    // No stream wants the blocks any more: the fetch may end early.
    std::atomic<bool> abandoned{false};
};

// One fetch of a version's seek table, shared by all callers that ask for it (seek_table.h).
struct SeekTable {
    using Done = std::function<void(const Result<std::shared_ptr<const FrameLayout>>&)>;

    Mutex mutex;
    // Null until it has been read.
    std::shared_ptr<const FrameLayout> layout GUARDED_BY(mutex);
    bool is_under_way GUARDED_BY(mutex) = false;
    std::vector<Done> waiting GUARDED_BY(mutex);
};

// Where the parts of a version begin, found once the file's own table is in memory; shared by all handles.
class KnownParts {
public:
    // Null if no part is known. `find` is called without the lock, until it returns parts or has been called kTries
    // times.
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
    // More than one, because the pieces of a table may arrive one by one.
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
    // A request for these stored bytes of this version.
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
    // Size and Last-Modified of the stored object; the time is zero if no reply had it.
    const std::uint64_t stored_size;
    const WallTime modified;
    const std::shared_ptr<const FrameLayout> layout;
    // Size of the file.
    const std::uint64_t size;
    // The version was opened without its seek table.
    const bool lacks_table;

    // Pool buffers that a block takes while it is fetched.
    [[nodiscard]] std::size_t buffers_per_block() const { return layout->identity() ? 1 : 2; }

    std::unordered_map<std::uint64_t, std::shared_ptr<CachedBlock>> blocks;
    // The last stored bytes of the object, which the first request fetched; null for a plain file that is block 0 as a
    // whole.
    std::shared_ptr<CachedBlock> tail;
    // Set when the store no longer has this version.
    std::optional<Error> gone;
    // `first_table` is read if the version was opened without a table, `second_table` if a frame does not fit the first
    // one.
    SeekTable first_table;
    SeekTable second_table;
    KnownParts parts;
    // What this node keeps of the version; null if nothing. Set before the version is shared.
    std::shared_ptr<KeptFile> kept;
};

}  // namespace ckptfs
