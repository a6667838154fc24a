// SPDX-License-Identifier: Apache-2.0
// The blocks of file data that all handles and processes of a mount share.
//
// A block is kFrameSize bytes of one version of one object in one buffer of the pool. It is fetched once however many
// reads want it; a read may be answered as soon as its bytes are there, before its block is. When memory is short,
// blocks that a sequential stream has passed go first, then those used longest ago, then what was read ahead furthest.
// Blocks that are being fetched or that an answer still refers to stay. Writers that wait for memory take it from here
// (BufferPool::add_pressure_listener).
//
// Read-ahead never waits for memory: where there is none it does not happen. A read that needs memory waits in one
// queue, of which only the head may hold buffers while it waits for more; so waiting reads cannot hold each other up.
// When a fetch fails after the whole time for which requests are retried, reads that were in the queue when it began
// have waited as long, and fail with it.
//
// block_cache_runs.cc has what is done with runs of blocks: read-ahead, and what fetches bring.
//
// Ownership: outlives all readers and every payload they returned; the pool outlives the cache.
// Threads: all functions may be called from any thread. Nothing is called back and no buffer is returned to the pool
// while the cache's mutex is held.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/bytes.h"
#include "ckptfs/clock.h"
#include "ckptfs/codec.h"
#include "ckptfs/file_cache.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "read/block.h"
#include "read/eviction_order.h"
#include "read/pending_read.h"
#include "read/read_shares.h"
#include "read/read_window.h"
#include "read/reference_read.h"

namespace ckptfs {

struct ReadStatistics {
    // Reads answered from memory, and reads that had to wait.
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
    std::uint64_t requests = 0;
    std::uint64_t bytes_fetched = 0;
    // Bytes that were fetched ahead and dropped without having been read.
    std::uint64_t bytes_wasted = 0;
    std::uint64_t blocks_held = 0;
    std::uint64_t requests_in_flight = 0;
};

class BlockCache {
public:
    struct Limits {
        // 256 MiB: a full window of one fast reader (192 MiB) and what slower readers of the same file still need of
        // what it has passed. More would be memory the kernel's page cache uses better.
        std::size_t blocks = 256;
        // Requests in flight for blocks that no read waits for yet.
        std::size_t requests_ahead = 48;

        // Limits with as many blocks as keep `requests_ahead` requests busy.
        static Limits for_requests(int requests_ahead);
    };

    // `files`: what this node keeps on its disk, or null; outlives the cache.
    BlockCache(BufferPool& pool, Clock& clock, Limits limits, FileCache* files = nullptr);
    BlockCache(BufferPool& pool, Clock& clock) : BlockCache(pool, clock, Limits()) {}
    ~BlockCache();
    BlockCache(const BlockCache&) = delete;
    BlockCache& operator=(const BlockCache&) = delete;

    // --- versions
    // The known version of this object, with its blocks, or a new one.
    std::shared_ptr<CachedVersion> version(const ObjectInfo& object, std::shared_ptr<const FrameLayout> layout);
    // The known version of this container, which needs no second seek table; null if none is known or it has no ETag.
    std::shared_ptr<CachedVersion> known_container(const ObjectInfo& object);
    // Drops the containers that no reader has open, with their tables and blocks.
    void forget_closed();
    // Keeps the `bytes` bytes of the object from `offset` that the first request fetched into `buffer`.
    void keep_tail(CachedVersion& version, std::uint64_t offset, std::uint32_t bytes, Buffer buffer);
    // The store no longer has the version: until mark_there(), reads of blocks that are not in memory fail with
    // `error`.
    void mark_gone(CachedVersion& version, const Error& error);
    // Undoes mark_gone(): the same bytes have been put back, or an earlier reply was wrong.
    void mark_there(CachedVersion& version);

    // --- reads
    // The bytes of a read, if all are in memory; else whether the missing ones are being fetched.
    struct Lookup {
        std::optional<Payload> payload;
        Found found = Found::kReady;
        // The bytes are from the tail that the first request fetched: such a read says nothing about the access
        // pattern.
        bool from_tail = false;
    };
    Lookup try_read(CachedVersion& version, std::uint64_t offset, std::size_t size);
    // Makes `read` wait for its blocks, and calls `fetch` with runs of those that are neither there nor being fetched.
    using Fetch = std::function<void(std::shared_ptr<BlockRun>)>;
    void read(std::shared_ptr<CachedVersion> version, std::shared_ptr<PendingRead> read, Fetch fetch);
    // As read(), but never waits for memory: false if there is not enough, and nothing has been requested then.
    [[nodiscard]] bool read_now(std::shared_ptr<CachedVersion> version, std::shared_ptr<PendingRead> read, Fetch fetch);
    // Whether a frame with bytes of `range` refers to others. The caller holds a payload of these bytes, so that their
    // blocks stay in memory.
    [[nodiscard]] bool refers(const CachedVersion& version, FileRange range) const;

    // --- read-ahead
    // Runs of the absent blocks of `span`, and the first block for which there was no memory or no free request.
    struct Claim {
        std::vector<std::shared_ptr<BlockRun>> runs;
        std::uint64_t end = 0;
        // The claim ended early for lack of memory, not of a free request.
        bool memory_is_short = false;
    };
    Claim claim_ahead(CachedVersion& version, BlockSpan span, std::uint64_t blocks_per_request);
    void consumed(CachedVersion& version, BlockSpan span);
    // Ends the read-ahead in `span` that no other stream wants; blocks of it that are in memory and unread are evicted
    // before used ones.
    void abandon(CachedVersion& version, BlockSpan span);
    ReadShares& shares() { return shares_; }
    // Three quarters of the allowed read-ahead requests are in flight.
    [[nodiscard]] bool is_crowded() const { return requests_ahead_.load() * 4 >= max_requests_ahead_ * 3; }

    // Drops the blocks that no read has asked for since `then`, and versions without a reader or blocks.
    void forget_unused(SteadyTime then);

    // --- fetches
    DirectReads& direct_reads() { return direct_reads_; }
    // Stored bytes of the object, from the tail that the first request fetched; empty if any of them is not in memory.
    [[nodiscard]] Payload stored_tail(const CachedVersion& version, std::uint64_t offset, std::uint64_t size);
    // held_head(): the first block; held_end(): the tail of a plain file, or else its last block with the one before
    // it. Each without what is not in memory, and without a gap.
    [[nodiscard]] Payload held_head(const CachedVersion& version);
    [[nodiscard]] Payload held_end(const CachedVersion& version);
    // Delivers to the waiters: `filled` has reached what one of them needs, or the block is full.
    void filled(std::shared_ptr<CachedBlock> block);
    // A block of the run, which goes on, will not be filled: the reads that wait for it fail.
    void fail(BlockRun& run, const std::shared_ptr<CachedBlock>& block, const Error& error);
    // Ends the run. Reads that wait for blocks that are not full fail with `error`.
    void finish(BlockRun& run, const std::optional<Error>& error);
    void count_fetched(std::uint64_t bytes) { bytes_fetched_.fetch_add(bytes, std::memory_order_relaxed); }

    [[nodiscard]] ReadStatistics statistics() const;

private:
    enum class Need : std::uint8_t { kAhead, kRead };
    struct Wanted {
        std::shared_ptr<CachedVersion> version;
        std::shared_ptr<PendingRead> read;
        Fetch fetch;
        std::vector<Buffer> spare;
        // How many reads had ever joined the queue before this one.
        std::uint64_t turn = 0;
    };

    // Buffers.
    [[nodiscard]] std::optional<Buffer> take_now(Need need);
    [[nodiscard]] bool evict_one(Need need);
    void evict(CachedBlock& block) REQUIRES(mutex_);
    // Evicts a block for the pool's waiters for `waiting`; false if none can be evicted, or that would not help.
    bool relieve(MemoryUse waiting);
    void repay();

    [[nodiscard]] static bool in_tail(const CachedVersion& version, std::uint64_t offset) {
        return version.tail != nullptr && version.layout->identity() && offset >= version.tail->offset;
    }
    void touch(const std::shared_ptr<CachedBlock>& block) REQUIRES(mutex_);
    [[nodiscard]] Slice pin(const std::shared_ptr<CachedBlock>& block, std::uint32_t begin, std::uint32_t end)
        REQUIRES(mutex_);
    // Lookups no longer find the block; its holders keep it alive.
    void forget(CachedBlock& block) REQUIRES(mutex_);
    void abandon_run(BlockRun& run) REQUIRES(mutex_);
    // Takes the block out of its run; returns the reads that wait for it.
    [[nodiscard]] std::vector<CachedBlock::Waiter> give_up(CachedBlock& block) REQUIRES(mutex_);
    [[nodiscard]] static std::shared_ptr<CachedBlock> find_block(const CachedVersion& version, std::uint64_t index) {
        const auto found = version.blocks.find(index);
        return found == version.blocks.end() ? nullptr : found->second;
    }
    [[nodiscard]] std::shared_ptr<CachedBlock> find_full(const CachedVersion& version, std::uint64_t index) const
        REQUIRES(mutex_);
    [[nodiscard]] std::shared_ptr<CachedBlock> create(CachedVersion& version, std::uint64_t index,
                                                      std::vector<Buffer>& spare) REQUIRES(mutex_);
    // Released without the mutex: closing their kept files can take long.
    using Versions = std::vector<std::shared_ptr<CachedVersion>>;
    [[nodiscard]] Versions take_empty_versions() REQUIRES(mutex_);
    static void keep_last_frame(const CachedVersion& version, const std::shared_ptr<CachedBlock>& end);

    // Takes the buffers that the read still needs, without waiting; true once it is attached.
    [[nodiscard]] bool attach_now(Wanted& wanted);
    // Attaches the read if its buffers suffice and returns 0; else returns how many more it needs and changes nothing.
    [[nodiscard]] std::size_t attach(Wanted& wanted);
    void serve_queue();
    // Takes out the reads that joined the queue before `run` was made, except the one that is being served.
    [[nodiscard]] std::list<Wanted> take_waiting_since(const BlockRun& run) REQUIRES(mutex_);
    [[nodiscard]] std::shared_ptr<BlockRun> make_run() const REQUIRES(mutex_);

    BufferPool& pool_;
    Clock& clock_;
    FileCache* const files_;
    const std::size_t max_blocks_;
    const std::size_t max_requests_ahead_;

    std::atomic<std::size_t> held_{0};
    std::atomic<std::size_t> requests_ahead_{0};
    std::atomic<std::size_t> requests_in_flight_{0};
    std::atomic<std::uint64_t> requests_{0};
    std::atomic<std::uint64_t> bytes_fetched_{0};
    std::atomic<std::uint64_t> bytes_wasted_{0};
    std::atomic<std::uint64_t> hits_{0};
    std::atomic<std::uint64_t> misses_{0};
    // A waiter of the pool may still need memory that the cache could not give when it was asked.
    std::atomic<bool> owes_memory_{false};
    ReadShares shares_;
    DirectReads direct_reads_;
    // Tells the pool's listener, which is never removed, whether the cache still exists.
    std::shared_ptr<BlockCache*> self_;

    mutable Mutex mutex_;
    std::unordered_map<std::string, std::shared_ptr<CachedVersion>> versions_ GUARDED_BY(mutex_);
    std::size_t sweep_at_ GUARDED_BY(mutex_) = 64;
    EvictionOrder order_ GUARDED_BY(mutex_);
    // A list, because the element being served keeps its address while others are taken out.
    std::list<Wanted> queue_ GUARDED_BY(mutex_);
    // The element of `queue_` that is being served, until it is taken out.
    const Wanted* served_ GUARDED_BY(mutex_) = nullptr;
    bool queue_served_ GUARDED_BY(mutex_) = false;
    // How many reads have ever joined the queue.
    std::uint64_t turns_ GUARDED_BY(mutex_) = 0;
};

}  // namespace ckptfs
