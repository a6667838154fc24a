// SPDX-License-Identifier: Apache-2.0
// The memory budget of a mount as one mapping cut into equal buffers. Buffers begin with a page if pages have 4 KiB; a
// larger page, as on some AArch64 kernels, may belong to two buffers.
//
// A page costs nothing until it is first used, and the buffer that was freed last is handed out first, so that a mount
// that needs little touches little. What was not needed lately goes back to the system (release_unused). Shares between
// the uses follow memory_shares.h.
//
// Waiters are served oldest first: a freed buffer goes to the use whose first waiter has waited longest, unless that
// use has reached its cap. Their callbacks run on `executor`, because the thread that frees a buffer may hold locks of
// its own or be an HTTP thread; without an executor they run on the thread that freed it. Callbacks that free or take
// buffers nest without growing the stack: a take() from within a callback is served after that callback.
//
// While a taker waits, the pressure listeners are asked again now and then by `timer`, since what they could not give
// at first (a block still in flight) may become free later.
//
// Ownership: executor and timer outlive the pool; the pool outlives its buffers and takers, and aborts the program if
// it does not, for their memory would be gone under them.
// Threads: as BufferPool says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/memory_shares.h"
#include "base/mutex.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/clock.h"
#include "ckptfs/executor.h"
#include "ckptfs/status.h"

namespace ckptfs {

// The pages that lie wholly in `size` bytes from `address`: all that can be given to the system without what lies
// beside them. `offset` counts from `address`.
struct WholePages {
    std::size_t offset = 0;
    std::size_t size = 0;

    friend bool operator==(const WholePages&, const WholePages&) = default;
};
[[nodiscard]] WholePages whole_pages(std::uintptr_t address, std::size_t size, std::size_t page_size);

class MemoryPool final : public BufferPool {
public:
    // `executor` and `timer` may be null. ENOMEM if the address space is too small.
    static Result<std::unique_ptr<MemoryPool>> create(const MemoryShares& shares, Executor* executor, Timer* timer);
    ~MemoryPool() override;
    MemoryPool(const MemoryPool&) = delete;
    MemoryPool& operator=(const MemoryPool&) = delete;

    std::optional<Buffer> try_take(MemoryUse use) override;
    void take(MemoryUse use, Ready ready) override;
    void recharge(Buffer buffer, MemoryUse use, Ready ready) override;
    bool try_recharge(Buffer& buffer, MemoryUse use) override;
    void add_pressure_listener(std::function<bool(MemoryUse waiting)> relieve) override;
    [[nodiscard]] PoolUsage usage() const override;

    // Gives the system the memory of the buffers that were free all the time since the last call. Returns how many
    // buffers those were. Takers wait meanwhile for the release of one buffer at most.
    std::size_t release_unused();

private:
    using Listeners = std::vector<std::function<bool(MemoryUse)>>;

    struct Waiter {
        std::uint64_t ticket = 0;
        MemoryUse use = MemoryUse::kReceive;
        Ready ready;
        // The buffer of a recharge, which is still charged to `from`; null for a take.
        std::byte* data = nullptr;
        MemoryUse from = MemoryUse::kReceive;
    };
    struct Grant {
        std::byte* data = nullptr;
        MemoryUse use = MemoryUse::kReceive;
        Ready ready;
    };

    MemoryPool(std::byte* memory, const MemoryShares& shares, Executor* executor, Timer* timer);

    void put_back(std::byte* data, MemoryUse use) override;

    [[nodiscard]] bool may_serve(const Waiter& waiter) const REQUIRES(mutex_);
    Grant serve(Waiter waiter) REQUIRES(mutex_);
    std::vector<Grant> serve_waiters() REQUIRES(mutex_);
    [[nodiscard]] bool waits(MemoryUse use) const REQUIRES(mutex_);
    [[nodiscard]] bool anyone_waits() const REQUIRES(mutex_);
    void watch_waiters() REQUIRES(mutex_);

    void serve_or_queue(Waiter waiter) EXCLUDES(mutex_);
    void deliver(Grant grant) EXCLUDES(mutex_);
    void deliver_to_waiters(std::vector<Grant> grants) EXCLUDES(mutex_);
    void ask_listeners(MemoryUse use) EXCLUDES(mutex_);
    void ask_listeners_again() EXCLUDES(mutex_);

    // Dependencies.
    Executor* const executor_;
    Timer* const timer_;

    // Constant.
    const MemoryShares shares_;
    std::byte* const memory_;
    const std::size_t page_size_;

    // Mutable.
    mutable Mutex mutex_;
    // Free buffers, taken from the back. The first `cold_` have no physical memory behind them.
    std::vector<std::byte*> free_ GUARDED_BY(mutex_);
    std::size_t cold_ GUARDED_BY(mutex_);
    // The smallest number of free buffers since release_unused().
    std::size_t least_free_ GUARDED_BY(mutex_);
    BuffersInUse in_use_ GUARDED_BY(mutex_){};
    std::size_t peak_in_use_ GUARDED_BY(mutex_) = 0;
    std::uint64_t last_ticket_ GUARDED_BY(mutex_) = 0;
    std::array<std::deque<Waiter>, kMemoryUses> waiters_ GUARDED_BY(mutex_);
    std::shared_ptr<const Listeners> listeners_ GUARDED_BY(mutex_) = std::make_shared<const Listeners>();
    // watch_: the timer that asks the listeners again is set. asking_: it has expired, and they are being asked.
    std::optional<Timer::Id> watch_ GUARDED_BY(mutex_);
    bool asking_ GUARDED_BY(mutex_) = false;
    Condition asked_;
    bool closing_ GUARDED_BY(mutex_) = false;
};

}  // namespace ckptfs
