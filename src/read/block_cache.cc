// SPDX-License-Identifier: Apache-2.0
#include "read/block_cache.h"

#include <algorithm>
#include <utility>

namespace ckptfs {

namespace {

// Keys and ETags hold no zero bytes. Some stores' ETags do not change with every overwrite: the size tells more. Nor
// does an ETag change with the description, without which a container is read as it is stored.
std::string version_name(const ObjectInfo& object, const FrameLayout& layout) {
    std::string name = object.key;
    name.push_back('\0');
    name += object.etag;
    name.push_back('\0');
    name += std::to_string(object.size);
    name.push_back('\0');
    name += (layout.identity() ? "plain " : "frames ") + std::to_string(layout.size());
    if (object.etag.empty()) {
        name.push_back('\0');
        name += std::to_string(object.last_modified.time_since_epoch().count());
    }
    return name;
}

// The piece of a read that lies in one block, as offsets within that block.
struct Piece {
    std::uint64_t index = 0;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
};

Piece piece_at(std::uint64_t first_block, std::size_t piece, std::uint64_t offset, std::size_t size) {
    const std::uint64_t index = first_block + piece;
    const std::uint64_t start = index * kFrameSize;
    return Piece{index, static_cast<std::uint32_t>(std::max(offset, start) - start),
                 static_cast<std::uint32_t>(std::min<std::uint64_t>(offset + size, start + kFrameSize) - start)};
}

}  // namespace

BlockCache::Limits BlockCache::Limits::for_requests(int requests_ahead) {
    Limits limits;
    limits.requests_ahead = static_cast<std::size_t>(std::max(requests_ahead, 1));
    const std::size_t window = limits.requests_ahead * ReadWindow::kMaxBlocksPerRequest;
    // A third more than a window, since the last quarter of the blocks is for others (`shares_`).
    limits.blocks = std::max(Limits().blocks, window + window / 3);
    return limits;
}

BlockCache::BlockCache(BufferPool& pool, Clock& clock, Limits limits, FileCache* files)
    : pool_(pool),
      clock_(clock),
      files_(files),
      max_blocks_(std::max<std::size_t>(
          std::min(limits.blocks, pool.usage().cap[static_cast<std::size_t>(MemoryUse::kRead)]), 1)),
      max_requests_ahead_(limits.requests_ahead),
      // The last quarter holds what slower readers of the same file, and replies under way, still need.
      shares_(max_blocks_ - max_blocks_ / 4),
      self_(std::make_shared<BlockCache*>(this)) {
    pool_.add_pressure_listener([alive = std::weak_ptr(self_)](MemoryUse waiting) {
        const auto self = alive.lock();
        return self != nullptr && (*self)->relieve(waiting);
    });
}

BlockCache::~BlockCache() = default;

// --- versions

std::shared_ptr<CachedVersion> BlockCache::version(const ObjectInfo& object,
                                                   std::shared_ptr<const FrameLayout> layout) {
    Versions forgotten;
    const MutexLock lock(mutex_);
    if (versions_.size() >= sweep_at_) {
        forgotten = take_empty_versions();
        sweep_at_ = std::max<std::size_t>(versions_.size() * 2, 64);
    }
    std::shared_ptr<CachedVersion>& known = versions_[version_name(object, *layout)];
    if (known == nullptr) {
        known = std::make_shared<CachedVersion>(object, std::move(layout));
        known->kept = files_ != nullptr ? files_->file(object, !known->layout->identity(), known->size) : nullptr;
    }
    // The same bytes may have been put back.
    known->gone.reset();
    return known;
}

BlockCache::Versions BlockCache::take_empty_versions() {
    Versions empty;
    std::erase_if(versions_, [&empty](const auto& entry) {
        const std::shared_ptr<CachedVersion>& version = entry.second;
        const bool is_empty = version.use_count() == 1 && version->blocks.empty() && version->tail == nullptr;
        if (is_empty) {
            empty.push_back(version);
        }
        return is_empty;
    });
    return empty;
}

std::shared_ptr<CachedVersion> BlockCache::known_container(const ObjectInfo& object) {
    const MutexLock lock(mutex_);
    const auto found = std::find_if(versions_.begin(), versions_.end(), [&object](const auto& entry) {
        const CachedVersion& version = *entry.second;
        return version.key == object.key && version.etag == object.etag && version.stored_size == object.size &&
               !version.layout->identity();
    });
    // Without an ETag it may be another version.
    if (object.etag.empty() || found == versions_.end()) {
        return nullptr;
    }
    found->second->gone.reset();
    return found->second;
}

void BlockCache::forget_closed() {
    // Released after the mutex, because their buffers go back to the pool.
    std::vector<std::shared_ptr<CachedVersion>> closed;
    std::vector<std::shared_ptr<CachedBlock>> blocks;
    const MutexLock lock(mutex_);
    std::erase_if(versions_, [&](const auto& entry) {
        const std::shared_ptr<CachedVersion>& version = entry.second;
        // A fetch of one of its blocks holds the version, too.
        if (version.use_count() > 1 || version->layout->identity()) {
            return false;
        }
        for (const auto& [index, block] : version->blocks) {
            blocks.push_back(block);
        }
        if (version->tail != nullptr) {
            blocks.push_back(version->tail);
        }
        closed.push_back(version);
        return true;
    });
    for (const std::shared_ptr<CachedBlock>& block : blocks) {
        evict(*block);
    }
}

void BlockCache::keep_tail(CachedVersion& version, std::uint64_t offset, std::uint32_t bytes, Buffer buffer) {
    auto block = std::make_shared<CachedBlock>(offset, bytes, std::move(buffer), held_);
    block->filled.store(bytes);
    keep_last_frame(version, block);
    const MutexLock lock(mutex_);
    const bool is_whole_file = offset == 0 && version.layout->identity();
    std::shared_ptr<CachedBlock>& slot = is_whole_file ? version.blocks[0] : version.tail;
    if (slot != nullptr) {
        return;
    }
    block->version = &version;
    slot = block;
    // Not read ahead: no reader is sure to come for it, so it goes like any block that was used once.
    block->was_read = true;
    order_.place(block, CachedBlock::Place::kUsed, clock_.now());
}

void BlockCache::mark_gone(CachedVersion& version, const Error& error) {
    const MutexLock lock(mutex_);
    if (!version.gone) {
        version.gone = error;
    }
}

void BlockCache::mark_there(CachedVersion& version) {
    const MutexLock lock(mutex_);
    version.gone.reset();
}

// --- reads

BlockCache::Lookup BlockCache::try_read(CachedVersion& version, std::uint64_t offset, std::size_t size) {
    Lookup lookup;
    Payload payload;
    const std::uint64_t first = offset / kFrameSize;
    const std::uint64_t last = (offset + size - 1) / kFrameSize;
    const MutexLock lock(mutex_);
    if (in_tail(version, offset)) {
        const auto begin = static_cast<std::uint32_t>(offset - version.tail->offset);
        payload.append(pin(version.tail, begin, begin + static_cast<std::uint32_t>(size)));
        touch(version.tail);
        hits_.fetch_add(1, std::memory_order_relaxed);
        lookup.payload = std::move(payload);
        lookup.from_tail = true;
        return lookup;
    }
    for (std::uint64_t index = first; index <= last; ++index) {
        const Piece piece = piece_at(index, 0, offset, size);
        const std::shared_ptr<CachedBlock> block = find_block(version, index);
        if (block == nullptr) {
            lookup.found = Found::kAbsent;
        } else if (block->filled.load() < piece.end) {
            lookup.found = lookup.found == Found::kAbsent ? Found::kAbsent : Found::kFetching;
        } else if (lookup.found == Found::kReady) {
            payload.append(pin(block, piece.begin, piece.end));
            touch(block);
        }
    }
    if (lookup.found == Found::kReady) {
        hits_.fetch_add(1, std::memory_order_relaxed);
        lookup.payload = std::move(payload);
    } else {
        misses_.fetch_add(1, std::memory_order_relaxed);
    }
    return lookup;
}

void BlockCache::read(std::shared_ptr<CachedVersion> version, std::shared_ptr<PendingRead> read, Fetch fetch) {
    Wanted wanted{std::move(version), std::move(read), std::move(fetch), {}, 0};
    bool others_wait = false;
    {
        const MutexLock lock(mutex_);
        others_wait = !queue_.empty();
    }
    if (!others_wait && attach_now(wanted)) {
        return;
    }
    wanted.spare.clear();
    {
        const MutexLock lock(mutex_);
        wanted.turn = turns_++;
        queue_.push_back(std::move(wanted));
        if (queue_served_) {
            return;
        }
        queue_served_ = true;
    }
    serve_queue();
}

bool BlockCache::attach_now(Wanted& wanted) {
    while (const std::size_t missing = attach(wanted)) {
        for (std::size_t taken = 0; taken < missing; ++taken) {
            std::optional<Buffer> buffer = take_now(Need::kRead);
            if (!buffer) {
                return false;
            }
            wanted.spare.push_back(std::move(*buffer));
        }
    }
    return true;
}

bool BlockCache::read_now(std::shared_ptr<CachedVersion> version, std::shared_ptr<PendingRead> read, Fetch fetch) {
    Wanted wanted{std::move(version), std::move(read), std::move(fetch), {}, 0};
    return attach_now(wanted);
}

bool BlockCache::refers(const CachedVersion& version, FileRange range) const {
    const MutexLock lock(mutex_);
    for (std::uint64_t index = range.offset / kFrameSize; index * kFrameSize < range.end(); ++index) {
        const std::shared_ptr<CachedBlock> block = find_block(version, index);
        if (block != nullptr && block->refers.load()) {
            return true;
        }
    }
    return false;
}

// Runs on one thread at a time (queue_served_): first that of the read that found the queue idle, then those that
// bring the buffers.
void BlockCache::serve_queue() {
    for (;;) {
        Wanted* head = nullptr;
        {
            const MutexLock lock(mutex_);
            if (queue_.empty()) {
                queue_served_ = false;
                return;
            }
            head = &queue_.front();
            served_ = head;
        }
        if (attach(*head) > 0) {
            std::optional<Buffer> buffer = take_now(Need::kRead);
            if (!buffer) {
                pool_.take(MemoryUse::kRead, [this, head](Buffer taken) {
                    head->spare.push_back(std::move(taken));
                    serve_queue();
                });
                return;
            }
            head->spare.push_back(std::move(*buffer));
            continue;
        }
        std::list<Wanted> served;
        {
            const MutexLock lock(mutex_);
            served_ = nullptr;
            served.splice(served.begin(), queue_, queue_.begin());
        }
    }
}

std::size_t BlockCache::attach(Wanted& wanted) {
    PendingRead& read = *wanted.read;
    std::vector<std::pair<std::size_t, Slice>> there;
    std::vector<std::shared_ptr<BlockRun>> runs;
    std::optional<Error> gone;
    {
        const MutexLock lock(mutex_);
        std::size_t absent = 0;
        for (std::size_t i = 0; i < read.pieces(); ++i) {
            absent += find_block(*wanted.version, read.first_block() + i) == nullptr ? 1 : 0;
        }
        if (absent > 0 && wanted.version->gone) {
            gone = wanted.version->gone;
        } else if (const std::size_t needed = absent * wanted.version->buffers_per_block();
                   needed > wanted.spare.size()) {
            return needed - wanted.spare.size();
        }
        std::shared_ptr<BlockRun> run;
        for (std::size_t i = 0; i < read.pieces() && !gone; ++i) {
            const Piece piece = piece_at(read.first_block(), i, read.offset(), read.size());
            std::shared_ptr<CachedBlock> block = find_block(*wanted.version, piece.index);
            if (block == nullptr) {
                block = create(*wanted.version, piece.index, wanted.spare);
                if (run == nullptr) {
                    run = make_run();
                    runs.push_back(run);
                    requests_in_flight_.fetch_add(1, std::memory_order_relaxed);
                }
                run->blocks.push_back(block);
                block->run = run.get();
            } else {
                run = nullptr;
            }
            touch(block);
            // `wake_at` is set before `filled` is checked: either it is seen here to suffice, or the fetch sees the
            // waiter.
            block->wake_at.store(std::min(block->wake_at.load(), piece.end));
            if (block->filled.load() >= piece.end) {
                there.emplace_back(i, pin(block, piece.begin, piece.end));
            } else {
                block->waiters.push_back(CachedBlock::Waiter{wanted.read, i, piece.begin, piece.end});
            }
        }
    }
    wanted.spare.clear();
    if (gone) {
        read.fail_all(*gone);
    }
    for (auto& [piece, slice] : there) {
        read.deliver(piece, std::move(slice));
    }
    for (std::shared_ptr<BlockRun>& run : runs) {
        wanted.fetch(std::move(run));
    }
    return 0;
}

// --- buffers

std::optional<Buffer> BlockCache::take_now(Need need) {
    if (held_.load() >= max_blocks_ && !evict_one(need) && need == Need::kAhead) {
        return std::nullopt;
    }
    std::optional<Buffer> buffer = pool_.try_take(MemoryUse::kRead);
    if (!buffer && evict_one(need)) {
        buffer = pool_.try_take(MemoryUse::kRead);
    }
    return buffer;
}

bool BlockCache::evict_one(Need need) {
    std::shared_ptr<CachedBlock> victim;
    {
        const MutexLock lock(mutex_);
        victim = order_.victim(need == Need::kRead, clock_.now());
        if (victim == nullptr) {
            return false;
        }
        evict(*victim);
    }
    return true;
}

void BlockCache::evict(CachedBlock& block) {
    if (!block.was_read) {
        bytes_wasted_.fetch_add(block.size, std::memory_order_relaxed);
    }
    forget(block);
}

void BlockCache::forget_unused(SteadyTime then) {
    while (true) {
        // Released after the mutex, because its buffer goes back to the pool.
        std::shared_ptr<CachedBlock> victim;
        Versions forgotten;
        const MutexLock lock(mutex_);
        victim = order_.unused_since(then);
        if (victim == nullptr) {
            forgotten = take_empty_versions();
            return;
        }
        evict(*victim);
    }
}

bool BlockCache::relieve(MemoryUse waiting) {
    const PoolUsage usage = pool_.usage();
    const auto use = static_cast<std::size_t>(waiting);
    const auto reading = static_cast<std::size_t>(MemoryUse::kRead);
    // Another use that has reached its cap waits for itself, and what is reserved for reads would only lie idle.
    const bool helps = waiting == MemoryUse::kRead ||
                       (usage.in_use[use] < usage.cap[use] && usage.in_use[reading] > usage.reserve[reading]);
    if (usage.waiting[use] == 0 || !helps) {
        return false;
    }
    // The debt is set before memory is looked for, so that a thread that makes a block idle meanwhile sees it.
    owes_memory_.store(true);
    return evict_one(Need::kRead);
}

// Called whenever blocks may have become idle.
void BlockCache::repay() {
    while (owes_memory_.load() && owes_memory_.exchange(false)) {
        bool gave = false;
        for (std::size_t use = 0; use < kMemoryUses; ++use) {
            gave = relieve(static_cast<MemoryUse>(use)) || gave;
        }
        if (!gave) {
            return;
        }
    }
}

// --- blocks

std::shared_ptr<CachedBlock> BlockCache::create(CachedVersion& version, std::uint64_t index,
                                                std::vector<Buffer>& spare) {
    const auto take = [&spare] {
        Buffer buffer = std::move(spare.back());
        spare.pop_back();
        return buffer;
    };
    const std::uint64_t offset = index * kFrameSize;
    auto block = std::make_shared<CachedBlock>(
        offset, static_cast<std::uint32_t>(std::min<std::uint64_t>(kFrameSize, version.size - offset)), take(), held_);
    if (version.buffers_per_block() > 1) {
        block->stored = take();
    }
    block->version = &version;
    version.blocks.emplace(index, block);
    return block;
}

void BlockCache::touch(const std::shared_ptr<CachedBlock>& block) {
    block->was_read = true;
    if (block->run != nullptr) {
        block->run->wanted = true;
    }
    if (block->place != CachedBlock::Place::kNone) {
        order_.place(
            block,
            block->place == CachedBlock::Place::kConsumed ? CachedBlock::Place::kConsumed : CachedBlock::Place::kUsed,
            clock_.now());
    }
}

Slice BlockCache::pin(const std::shared_ptr<CachedBlock>& block, std::uint32_t begin, std::uint32_t end) {
    block->pins.fetch_add(1);
    std::shared_ptr<const void> lease(block->buffer.data(),
                                      [this, held = std::shared_ptr<CachedBlock>(block)](const void*) mutable {
                                          held->pins.fetch_sub(1);
                                          held.reset();
                                          repay();
                                      });
    return Slice{std::move(lease), ByteSpan(block->buffer.data(), end).subspan(begin)};
}

void BlockCache::forget(CachedBlock& block) {
    CachedVersion* version = std::exchange(block.version, nullptr);
    if (version != nullptr) {
        if (version->tail.get() == &block) {
            version->tail = nullptr;
        } else {
            version->blocks.erase(block.offset / kFrameSize);
        }
    }
    order_.remove(block);
}

ReadStatistics BlockCache::statistics() const {
    ReadStatistics statistics;
    statistics.hits = hits_.load(std::memory_order_relaxed);
    statistics.misses = misses_.load(std::memory_order_relaxed);
    statistics.requests = requests_.load(std::memory_order_relaxed);
    statistics.bytes_fetched = bytes_fetched_.load(std::memory_order_relaxed);
    statistics.bytes_wasted = bytes_wasted_.load(std::memory_order_relaxed);
    statistics.blocks_held = held_.load(std::memory_order_relaxed);
    statistics.requests_in_flight = requests_in_flight_.load(std::memory_order_relaxed);
    return statistics;
}

}  // namespace ckptfs
