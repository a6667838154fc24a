// SPDX-License-Identifier: Apache-2.0
#include "base/memory_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/flat_call.h"
#include "base/text.h"
#include "ckptfs/log.h"

#if defined(__SANITIZE_ADDRESS__)
#define CKPTFS_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CKPTFS_HAS_ASAN 1
#endif
#endif
#if defined(CKPTFS_HAS_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace ckptfs {
namespace {

// How often listeners are asked while a taker waits. Short compared with the 30 ms that a request to S3 takes at best,
// and too rare to cost anything.
constexpr Milliseconds kAskAgainAfter{20};

// AddressSanitizer then reports any access to a buffer that was given back.
void forbid_access([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t size) {
#if defined(CKPTFS_HAS_ASAN)
    __asan_poison_memory_region(data, size);
#endif
}

void allow_access([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t size) {
#if defined(CKPTFS_HAS_ASAN)
    __asan_unpoison_memory_region(data, size);
#endif
}

std::size_t index_of(MemoryUse use) {
    return static_cast<std::size_t>(use);
}

}  // namespace

WholePages whole_pages(std::uintptr_t address, std::size_t size, std::size_t page_size) {
    const std::size_t offset = (page_size - address % page_size) % page_size;
    return size < offset ? WholePages() : WholePages{offset, (size - offset) / page_size * page_size};
}

Result<std::unique_ptr<MemoryPool>> MemoryPool::create(const MemoryShares& shares, Executor* executor, Timer* timer) {
    const std::size_t size = shares.total * kBufferSize;
    void* const memory =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return failure(
            ENOMEM, format("cannot map {} MiB for --max-memory; use less or raise the limit (ulimit -v)", size >> 20));
    }
    // Both are only advice: a core file without gigabytes of file data, and fewer faults on the first touch.
    madvise(memory, size, MADV_DONTDUMP);
    madvise(memory, size, MADV_HUGEPAGE);
    return std::unique_ptr<MemoryPool>(new MemoryPool(static_cast<std::byte*>(memory), shares, executor, timer));
}

MemoryPool::MemoryPool(std::byte* memory, const MemoryShares& shares, Executor* executor, Timer* timer)
    : executor_(executor),
      timer_(timer),
      shares_(shares),
      memory_(memory),
      page_size_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
      cold_(shares.total),
      least_free_(shares.total) {
    free_.reserve(shares_.total);
    // The lowest address first.
    for (std::size_t index = shares_.total; index > 0; --index) {
        free_.push_back(memory_ + (index - 1) * kBufferSize);
    }
    forbid_access(memory_, shares_.total * kBufferSize);
}

MemoryPool::~MemoryPool() {
    MutexLock lock(mutex_);
    closing_ = true;
    const std::optional<Timer::Id> watch = std::exchange(watch_, std::nullopt);
    lock.unlock();
    if (watch) {
        timer_->cancel(*watch);
    }
    lock.lock();
    asked_.wait(lock, [this]() REQUIRES(mutex_) { return !asking_; });
    const std::size_t held = shares_.total - free_.size();
    if (held != 0 || anyone_waits()) {
        log_error(format("the memory pool is destroyed while {} buffers are held", held));
        std::abort();
    }
    allow_access(memory_, shares_.total * kBufferSize);
    munmap(memory_, shares_.total * kBufferSize);
}

std::optional<Buffer> MemoryPool::try_take(MemoryUse use) {
    Waiter taker;
    taker.use = use;
    const MutexLock lock(mutex_);
    if (waits(use) || !may_serve(taker)) {
        return std::nullopt;
    }
    return Buffer(this, serve(std::move(taker)).data, use);
}

void MemoryPool::take(MemoryUse use, Ready ready) {
    Waiter taker;
    taker.use = use;
    taker.ready = std::move(ready);
    serve_or_queue(std::move(taker));
}

void MemoryPool::recharge(Buffer buffer, MemoryUse use, Ready ready) {
    Waiter taker;
    taker.use = use;
    taker.ready = std::move(ready);
    taker.from = buffer.use();
    taker.data = release(buffer);
    serve_or_queue(std::move(taker));
}

bool MemoryPool::try_recharge(Buffer& buffer, MemoryUse use) {
    const MutexLock lock(mutex_);
    // If others wait, the room that the buffer leaves in its present use may be theirs.
    if (anyone_waits() || !may_recharge(shares_, in_use_, buffer.use(), use)) {
        return false;
    }
    --in_use_[index_of(buffer.use())];
    ++in_use_[index_of(use)];
    std::byte* data = release(buffer);
    buffer = Buffer(this, data, use);
    return true;
}

void MemoryPool::add_pressure_listener(std::function<bool(MemoryUse waiting)> relieve) {
    const MutexLock lock(mutex_);
    auto listeners = std::make_shared<Listeners>(*listeners_);
    listeners->push_back(std::move(relieve));
    listeners_ = std::move(listeners);
}

std::size_t MemoryPool::release_unused() {
    std::size_t released = 0;
    MutexLock lock(mutex_);
    const std::size_t unused = std::exchange(least_free_, free_.size());
    while (cold_ < std::min(unused, least_free_)) {
        // Pages that hold a neighbour's bytes as well stay.
        const WholePages pages = whole_pages(reinterpret_cast<std::uintptr_t>(free_[cold_]), kBufferSize, page_size_);
        if (pages.size > 0 && madvise(free_[cold_] + pages.offset, pages.size, MADV_DONTNEED) != 0) {
            log_debug(format("unused memory stays: {}", std::strerror(errno)));
            break;
        }
        ++cold_;
        ++released;
        lock.unlock();
        lock.lock();
    }
    return released;
}

PoolUsage MemoryPool::usage() const {
    const MutexLock lock(mutex_);
    PoolUsage usage;
    usage.total_buffers = shares_.total;
    usage.free_buffers = free_.size();
    usage.touched_buffers = shares_.total - cold_;
    usage.peak_in_use = peak_in_use_;
    for (std::size_t use = 0; use < kMemoryUses; ++use) {
        usage.in_use[use] = in_use_[use];
        usage.waiting[use] = waiters_[use].size();
        usage.reserve[use] = shares_.of[use].reserve;
        usage.cap[use] = shares_.of[use].cap;
    }
    return usage;
}

void MemoryPool::put_back(std::byte* data, MemoryUse use) {
    forbid_access(data, kBufferSize);
    std::vector<Grant> grants;
    {
        const MutexLock lock(mutex_);
        --in_use_[index_of(use)];
        free_.push_back(data);
        grants = serve_waiters();
    }
    deliver_to_waiters(std::move(grants));
}

bool MemoryPool::may_serve(const Waiter& waiter) const {
    return waiter.data == nullptr ? may_take(shares_, in_use_, waiter.use)
                                  : may_recharge(shares_, in_use_, waiter.from, waiter.use);
}

MemoryPool::Grant MemoryPool::serve(Waiter waiter) {
    if (waiter.data == nullptr) {
        waiter.data = free_.back();
        free_.pop_back();
        cold_ = std::min(cold_, free_.size());
        least_free_ = std::min(least_free_, free_.size());
        allow_access(waiter.data, kBufferSize);
    } else {
        --in_use_[index_of(waiter.from)];
    }
    ++in_use_[index_of(waiter.use)];
    peak_in_use_ = std::max(peak_in_use_, shares_.total - free_.size());
    return {waiter.data, waiter.use, std::move(waiter.ready)};
}

std::vector<MemoryPool::Grant> MemoryPool::serve_waiters() {
    std::vector<Grant> grants;
    while (true) {
        std::deque<Waiter>* oldest = nullptr;
        for (std::deque<Waiter>& queue : waiters_) {
            if (!queue.empty() && may_serve(queue.front()) &&
                (oldest == nullptr || queue.front().ticket < oldest->front().ticket)) {
                oldest = &queue;
            }
        }
        if (oldest == nullptr) {
            return grants;
        }
        grants.push_back(serve(std::move(oldest->front())));
        oldest->pop_front();
    }
}

bool MemoryPool::waits(MemoryUse use) const {
    return !waiters_[index_of(use)].empty();
}

bool MemoryPool::anyone_waits() const {
    return std::any_of(waiters_.begin(), waiters_.end(), [](const auto& queue) { return !queue.empty(); });
}

void MemoryPool::watch_waiters() {
    if (timer_ != nullptr && !watch_ && !asking_ && !closing_ && anyone_waits()) {
        watch_ = timer_->after(kAskAgainAfter, [this] { ask_listeners_again(); });
    }
}

void MemoryPool::serve_or_queue(Waiter waiter) {
    const MemoryUse use = waiter.use;
    // A recharge that keeps its use takes nothing from waiters, and they may wait for it.
    const bool keeps_use = waiter.data != nullptr && waiter.from == use;
    MutexLock lock(mutex_);
    if (!keeps_use && (waits(use) || !may_serve(waiter))) {
        waiter.ticket = ++last_ticket_;
        waiters_[index_of(use)].push_back(std::move(waiter));
        watch_waiters();
        lock.unlock();
        call_flat([this, use] { ask_listeners(use); });
        return;
    }
    Grant grant = serve(std::move(waiter));
    // A recharge leaves room in the use it came from.
    std::vector<Grant> others = serve_waiters();
    lock.unlock();
    deliver(std::move(grant));
    deliver_to_waiters(std::move(others));
}

void MemoryPool::deliver(Grant grant) {
    call_flat([this, grant = std::move(grant)] { grant.ready(Buffer(this, grant.data, grant.use)); });
}

void MemoryPool::deliver_to_waiters(std::vector<Grant> grants) {
    for (Grant& grant : grants) {
        // A program waits for these, and not for what is encoded in between.
        const bool is_urgent = grant.use == MemoryUse::kRead || grant.use == MemoryUse::kReceive;
        auto task = [this, grant = std::move(grant)]() mutable { deliver(std::move(grant)); };
        if (executor_ == nullptr) {
            task();
        } else if (is_urgent) {
            executor_->post_urgent(std::move(task));
        } else {
            executor_->post(std::move(task));
        }
    }
}

void MemoryPool::ask_listeners(MemoryUse use) {
    MutexLock lock(mutex_);
    const std::shared_ptr<const Listeners> listeners = listeners_;
    for (const auto& relieve : *listeners) {
        // No listener can free more buffers than there are; one that claims to would keep this loop running for ever.
        for (std::size_t given = 0; given < shares_.total && waits(use); ++given) {
            lock.unlock();
            const bool more = relieve(use);
            lock.lock();
            if (!more) {
                break;
            }
        }
    }
}

void MemoryPool::ask_listeners_again() {
    {
        const MutexLock lock(mutex_);
        if (closing_) {
            return;
        }
        watch_.reset();
        asking_ = true;
    }
    const auto ask = [this] {
        for (std::size_t use = 0; use < kMemoryUses; ++use) {
            call_flat([this, use] { ask_listeners(static_cast<MemoryUse>(use)); });
        }
        const MutexLock lock(mutex_);
        asking_ = false;
        watch_waiters();
        // Under the lock: the destructor may not return while we still touch the condition.
        asked_.notify_all();
    };
    if (executor_ == nullptr) {
        ask();
    } else {
        executor_->post(ask);
    }
}

}  // namespace ckptfs
