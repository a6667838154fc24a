// SPDX-License-Identifier: Apache-2.0
// The cache's side of requests: runs of blocks that are claimed ahead, given up, filled and finished.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "read/block_cache.h"

namespace ckptfs {

std::shared_ptr<BlockRun> BlockCache::make_run() const {
    auto run = std::make_shared<BlockRun>();
    run->turn = turns_;
    return run;
}

// --- read-ahead

BlockCache::Claim BlockCache::claim_ahead(CachedVersion& version, BlockSpan span, std::uint64_t blocks_per_request) {
    Claim claim;
    claim.end = span.begin;
    std::shared_ptr<BlockRun> run;
    for (; claim.end < span.end; ++claim.end) {
        {
            const MutexLock lock(mutex_);
            if (version.gone || in_tail(version, claim.end * kFrameSize)) {
                claim.end = span.end;
                break;
            }
            if (const std::shared_ptr<CachedBlock> block = find_block(version, claim.end)) {
                if (block->run != nullptr) {
                    block->run->wanted = true;
                }
                run = nullptr;
                continue;
            }
        }
        if (run != nullptr && run->blocks.size() >= blocks_per_request) {
            run = nullptr;
        }
        if (run == nullptr && requests_ahead_.load() >= max_requests_ahead_) {
            break;
        }
        std::vector<Buffer> buffers;
        while (buffers.size() < version.buffers_per_block()) {
            std::optional<Buffer> buffer = take_now(Need::kAhead);
            if (!buffer) {
                claim.memory_is_short = true;
                return claim;
            }
            buffers.push_back(std::move(*buffer));
        }
        const MutexLock lock(mutex_);
        if (find_block(version, claim.end) != nullptr) {
            run = nullptr;
            continue;
        }
        if (run != nullptr && run->abandoned.load()) {
            // Another stream that wanted these blocks has abandoned the run: it is not fetched.
            run = nullptr;
        }
        if (run == nullptr) {
            run = make_run();
            run->read_ahead = true;
            claim.runs.push_back(run);
            requests_ahead_.fetch_add(1);
            requests_in_flight_.fetch_add(1, std::memory_order_relaxed);
        }
        std::shared_ptr<CachedBlock> block = create(version, claim.end, buffers);
        block->run = run.get();
        run->blocks.push_back(std::move(block));
    }
    return claim;
}

void BlockCache::consumed(CachedVersion& version, BlockSpan span) {
    const MutexLock lock(mutex_);
    for (std::uint64_t index = span.begin; index < span.end; ++index) {
        const std::shared_ptr<CachedBlock> block = find_block(version, index);
        if (block != nullptr && block->place == CachedBlock::Place::kUsed) {
            order_.place(block, CachedBlock::Place::kConsumed, clock_.now());
        }
    }
}

void BlockCache::abandon(CachedVersion& version, BlockSpan span) {
    const MutexLock lock(mutex_);
    for (std::uint64_t index = span.begin; index < span.end; ++index) {
        const std::shared_ptr<CachedBlock> block = find_block(version, index);
        if (block != nullptr && block->run != nullptr && block->run->read_ahead && !block->run->wanted) {
            abandon_run(*block->run);
        } else if (block != nullptr && block->place == CachedBlock::Place::kUnread) {
            order_.place(block, CachedBlock::Place::kConsumed, clock_.now());
        }
    }
}

void BlockCache::abandon_run(BlockRun& run) {
    run.abandoned.store(true);
    for (const std::shared_ptr<CachedBlock>& block : run.blocks) {
        if (block != nullptr) {
            bytes_wasted_.fetch_add(block->filled.load(), std::memory_order_relaxed);
            forget(*block);
        }
    }
}

// --- fetches

// No other request fetches what is in the tail.
void BlockCache::keep_last_frame(const CachedVersion& version, const std::shared_ptr<CachedBlock>& end) {
    const std::uint64_t last = (version.size - 1) / kFrameSize;
    if (version.kept != nullptr && version.layout->identity() && last * kFrameSize >= end->offset) {
        version.kept->keep(last, Slice{end, end->bytes().subspan(last * kFrameSize - end->offset)});
    }
}

Payload BlockCache::stored_tail(const CachedVersion& version, std::uint64_t offset, std::uint64_t size) {
    Payload stored;
    const MutexLock lock(mutex_);
    if (version.tail != nullptr && offset >= version.tail->offset &&
        offset + size <= version.tail->offset + version.tail->size) {
        const auto begin = static_cast<std::uint32_t>(offset - version.tail->offset);
        stored.append(pin(version.tail, begin, begin + static_cast<std::uint32_t>(size)));
        touch(version.tail);
    }
    return stored;
}

std::shared_ptr<CachedBlock> BlockCache::find_full(const CachedVersion& version, std::uint64_t index) const {
    std::shared_ptr<CachedBlock> block = find_block(version, index);
    return block != nullptr && block->filled.load() == block->size ? block : nullptr;
}

Payload BlockCache::held_head(const CachedVersion& version) {
    Payload head;
    const MutexLock lock(mutex_);
    if (const std::shared_ptr<CachedBlock> first = find_full(version, 0)) {
        head.append(pin(first, 0, first->size));
    }
    return head;
}

Payload BlockCache::held_end(const CachedVersion& version) {
    Payload end;
    const MutexLock lock(mutex_);
    if (version.tail != nullptr && version.layout->identity()) {
        end.append(pin(version.tail, 0, version.tail->size));
        return end;
    }
    // The last block may be short.
    const std::uint64_t last = (version.size - 1) / kFrameSize;
    const std::shared_ptr<CachedBlock> block = find_full(version, last);
    const std::shared_ptr<CachedBlock> before = last > 0 && block != nullptr ? find_full(version, last - 1) : nullptr;
    for (const std::shared_ptr<CachedBlock>& each : {before, block}) {
        if (each != nullptr) {
            end.append(pin(each, 0, each->size));
        }
    }
    return end;
}

void BlockCache::filled(std::shared_ptr<CachedBlock> block) {
    std::vector<std::pair<CachedBlock::Waiter, Slice>> served;
    {
        const MutexLock lock(mutex_);
        const std::uint32_t available = block->filled.load();
        std::uint32_t next = CachedBlock::kNoWaiter;
        std::erase_if(block->waiters, [&](CachedBlock::Waiter& waiter) REQUIRES(mutex_) {
            if (waiter.end > available) {
                next = std::min(next, waiter.end);
                return false;
            }
            served.emplace_back(std::move(waiter), pin(block, waiter.begin, waiter.end));
            return true;
        });
        block->wake_at.store(next);
        if (available == block->size && block->run != nullptr) {
            for (std::shared_ptr<CachedBlock>& mine : block->run->blocks) {
                if (mine == block) {
                    mine = nullptr;
                }
            }
            block->run = nullptr;
            if (block->version != nullptr) {
                order_.place(block, block->was_read ? CachedBlock::Place::kUsed : CachedBlock::Place::kUnread,
                             clock_.now());
            }
        }
    }
    for (auto& [waiter, slice] : served) {
        waiter.read->deliver(waiter.piece, std::move(slice));
    }
    repay();
}

std::list<BlockCache::Wanted> BlockCache::take_waiting_since(const BlockRun& run) {
    std::list<Wanted> waited;
    for (auto each = queue_.begin(); each != queue_.end() && each->turn < run.turn;) {
        const auto next = std::next(each);
        if (&*each != served_) {
            waited.splice(waited.end(), queue_, each);
        }
        each = next;
    }
    return waited;
}

std::vector<CachedBlock::Waiter> BlockCache::give_up(CachedBlock& block) {
    forget(block);
    block.run = nullptr;
    return std::exchange(block.waiters, {});
}

void BlockCache::fail(BlockRun& run, const std::shared_ptr<CachedBlock>& block, const Error& error) {
    std::vector<CachedBlock::Waiter> failed;
    {
        const MutexLock lock(mutex_);
        const auto mine = std::find(run.blocks.begin(), run.blocks.end(), block);
        if (mine == run.blocks.end()) {
            return;
        }
        // The caller keeps the block.
        *mine = nullptr;
        failed = give_up(*block);
    }
    for (const CachedBlock::Waiter& waiter : failed) {
        waiter.read->fail(error);
    }
    failed.clear();
    repay();
}

void BlockCache::finish(BlockRun& run, const std::optional<Error>& error) {
    std::vector<std::shared_ptr<CachedBlock>> unfinished;
    std::vector<CachedBlock::Waiter> failed;
    std::list<Wanted> waited;
    {
        const MutexLock lock(mutex_);
        for (std::shared_ptr<CachedBlock>& block : run.blocks) {
            if (block == nullptr) {
                continue;
            }
            std::vector<CachedBlock::Waiter> waiters = give_up(*block);
            std::move(waiters.begin(), waiters.end(), std::back_inserter(failed));
            unfinished.push_back(std::move(block));
        }
        run.blocks.clear();
        requests_in_flight_.fetch_sub(1, std::memory_order_relaxed);
        requests_.fetch_add(run.is_kept ? 0 : 1, std::memory_order_relaxed);
        if (run.read_ahead) {
            requests_ahead_.fetch_sub(1);
        }
        if (error && error->retryable) {
            waited = take_waiting_since(run);
        }
    }
    unfinished.clear();
    for (const CachedBlock::Waiter& waiter : failed) {
        waiter.read->fail(error ? *error : Error{});
    }
    for (const Wanted& wanted : waited) {
        Error why = *error;
        why.message = format("{}: waiting for memory: {}", wanted.version->key, error->message);
        wanted.read->fail_all(why);
    }
    waited.clear();
    repay();
}

}  // namespace ckptfs
