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
// Where a fetch has asked the store for as long as requests are retried, reads that waited when it began have waited as
// long, and fail with it.
//
// block_cache_runs.cc has what is done with runs of blocks: read-ahead, and what fetches bring.
//
// Ownership: outlives all readers and every payload they answered; the pool outlives the cache.
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
    // Fetched ahead and given up without having been read.
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
        // For blocks that no read waits for yet.
        std::size_t requests_ahead = 48;

        // With as many blocks as keep these requests busy.
        static Limits for_requests(int requests_ahead);
    };

    // `files`: what this node keeps, if anything; outlives the cache.
    BlockCache(BufferPool& pool, Clock& clock, Limits limits, FileCache* files = nullptr);
    BlockCache(BufferPool& pool, Clock& clock) : BlockCache(pool, clock, Limits()) {}
    ~BlockCache();
    BlockCache(const BlockCache&) = delete;
    BlockCache& operator=(const BlockCache&) = delete;

    // --- versions
    // The one that is known already, with its blocks, or a new one.
    std::shared_ptr<CachedVersion> version(const ObjectInfo& object, std::shared_ptr<const FrameLayout> layout);
    // The one of this container that is known already, with its seek table; or null.
    std::shared_ptr<CachedVersion> known_container(const ObjectInfo& object);
    // Gives up the containers that no reader has open, with their tables and blocks.
    void forget_closed();
    // `bytes` of the object from `offset`, as the first request brought them in `buffer`.
    void keep_tail(CachedVersion& version, std::uint64_t offset, std::uint32_t bytes, Buffer buffer);
    // Blocks that are not there can never be fetched again.
    void mark_gone(CachedVersion& version, const Error& error);
    // The same bytes have been put back, or an answer was wrong.
    void mark_there(CachedVersion& version);

    // --- reads
    // The answer, if all of it is in memory. Else how much is on its way.
    struct Lookup {
        std::optional<Payload> payload;
        Found found = Found::kReady;
        // From the end of the file that came with the first request: says nothing about how the file is read.
        bool from_tail = false;
    };
    Lookup try_read(CachedVersion& version, std::uint64_t offset, std::size_t size);
    // Waits for the blocks that are being fetched, and has `fetch` called with runs of those that are not.
    using Fetch = std::function<void(std::shared_ptr<BlockRun>)>;
    void read(std::shared_ptr<CachedVersion> version, std::shared_ptr<PendingRead> read, Fetch fetch);
    // As read(), but never waits for memory: false where there is not enough, and nothing has been asked for.
    [[nodiscard]] bool read_now(std::shared_ptr<CachedVersion> version, std::shared_ptr<PendingRead> read, Fetch fetch);
    // Whether a frame that holds bytes of this range, which an answer still holds, refers to others.
    [[nodiscard]] bool refers(const CachedVersion& version, FileRange range) const;

    // --- read-ahead
    // Runs of the absent blocks of `span`, and the first block for which there was no memory or no free request.
    struct Claim {
        std::vector<std::shared_ptr<BlockRun>> runs;
        std::uint64_t end = 0;
        // Why it ended early, if it was not the number of requests.
        bool memory_is_short = false;
    };
    Claim claim_ahead(CachedVersion& version, BlockSpan span, std::uint64_t blocks_per_request);
    void consumed(CachedVersion& version, BlockSpan span);
    // Ends fetches ahead there that no other stream wants; blocks that are there and unread go first.
    void abandon(CachedVersion& version, BlockSpan span);
    ReadShares& shares() { return shares_; }
    // Nearly as many requests are ahead as there may be.
    [[nodiscard]] bool is_crowded() const { return requests_ahead_.load() * 4 >= max_requests_ahead_ * 3; }

    // Gives up the blocks that no read has asked for since `then`, and versions without a reader or blocks.
    void forget_unused(SteadyTime then);

    // --- fetches
    DirectReads& direct_reads() { return direct_reads_; }
    // Stored bytes of the object that the first request brought, while they are kept; empty if any is missing.
    [[nodiscard]] Payload stored_tail(const CachedVersion& version, std::uint64_t offset, std::uint64_t size);
    // What is in memory of the first block, and of the last kFrameSize bytes of the file or more without a gap.
    [[nodiscard]] Payload held_head(const CachedVersion& version);
    [[nodiscard]] Payload held_end(const CachedVersion& version);
    // More of the block has been filled than some waiter needs, or all of it.
    void filled(std::shared_ptr<CachedBlock> block);
    // The fetch has ended; the blocks that are not full fail with `error`.
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
        // How many had come to the queue before.
        std::uint64_t turn = 0;
    };

    // Buffers.
    [[nodiscard]] std::optional<Buffer> take_now(Need need);
    [[nodiscard]] bool evict_one(Need need);
    void evict(CachedBlock& block) REQUIRES(mutex_);
    // For the pool's waiters; false where nothing can be given, or it would not help.
    bool relieve(MemoryUse waiting);
    void repay();

    [[nodiscard]] static bool in_tail(const CachedVersion& version, std::uint64_t offset) {
        return version.tail != nullptr && version.layout->identity() && offset >= version.tail->offset;
    }
    void touch(const std::shared_ptr<CachedBlock>& block) REQUIRES(mutex_);
    [[nodiscard]] Slice pin(const std::shared_ptr<CachedBlock>& block, std::uint32_t begin, std::uint32_t end)
        REQUIRES(mutex_);
    // The block is no longer found; what still refers to it keeps it.
    void forget(CachedBlock& block) REQUIRES(mutex_);
    void abandon_run(BlockRun& run) REQUIRES(mutex_);
    [[nodiscard]] static std::shared_ptr<CachedBlock> find_block(const CachedVersion& version, std::uint64_t index) {
        const auto found = version.blocks.find(index);
        return found == version.blocks.end() ? nullptr : found->second;
    }
    [[nodiscard]] std::shared_ptr<CachedBlock> find_full(const CachedVersion& version, std::uint64_t index) const
        REQUIRES(mutex_);
    [[nodiscard]] std::shared_ptr<CachedBlock> create(CachedVersion& version, std::uint64_t index,
                                                      std::vector<Buffer>& spare) REQUIRES(mutex_);
    // To be let go of without the mutex: to close what is kept of them can last.
    using Versions = std::vector<std::shared_ptr<CachedVersion>>;
    [[nodiscard]] Versions take_empty_versions() REQUIRES(mutex_);
    static void keep_last_frame(const CachedVersion& version, const std::shared_ptr<CachedBlock>& end);

    // Takes what the read still needs, as far as there is memory; true when it has been attached.
    [[nodiscard]] bool attach_now(Wanted& wanted);
    // Attaches the read when the buffers suffice; else says how many more are needed and changes nothing.
    [[nodiscard]] std::size_t attach(Wanted& wanted);
    void serve_queue();
    // Those that have waited since before the fetch of `run`, but for one that is being served.
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
    // A taker waits for memory that the cache could not give when it was asked.
    std::atomic<bool> owes_memory_{false};
    ReadShares shares_;
    DirectReads direct_reads_;
    // The pool keeps its listeners for good.
    std::shared_ptr<BlockCache*> self_;

    mutable Mutex mutex_;
    std::unordered_map<std::string, std::shared_ptr<CachedVersion>> versions_ GUARDED_BY(mutex_);
    std::size_t sweep_at_ GUARDED_BY(mutex_) = 64;
    EvictionOrder order_ GUARDED_BY(mutex_);
    // A list, as what is served stays where it is while others are taken out.
    std::list<Wanted> queue_ GUARDED_BY(mutex_);
    // The one that is being served, until it is taken out.
    const Wanted* served_ GUARDED_BY(mutex_) = nullptr;
    bool queue_served_ GUARDED_BY(mutex_) = false;
    // Reads that have ever come to the queue.
    std::uint64_t turns_ GUARDED_BY(mutex_) = 0;
};

}  // namespace ckptfs
