// SPDX-License-Identifier: Apache-2.0
// Many threads on a small budget: nobody loses a buffer, nobody waits for ever, no limit is passed.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <latch>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "base/executors.h"
#include "base/memory_pool.h"
#include "base/system_clock.h"
#include "base/timer_thread.h"
#include "support/eventually.h"

namespace ckptfs {
namespace {

constexpr int kThreads = 6;
constexpr int kRounds = 600;

MemoryShares tight_shares() {
    MemoryShares shares;
    shares.total = 12;
    shares.of = {MemoryShare{2, 4}, MemoryShare{2, 6}, MemoryShare{2, 8}, MemoryShare{1, 4}, MemoryShare{1, 3}};
    return shares;
}

// Holds what it was given until pressure asks for it, as the block cache does.
class Hoard {
public:
    void keep(Buffer buffer) {
        const std::lock_guard lock(mutex_);
        kept_.push_back(std::move(buffer));
    }
    bool give() {
        Buffer given;
        const std::lock_guard lock(mutex_);
        if (kept_.empty()) {
            return false;
        }
        std::swap(given, kept_.back());
        kept_.pop_back();
        return true;
    }
    void give_all() {
        while (give()) {
        }
    }

private:
    std::mutex mutex_;
    std::vector<Buffer> kept_;
};

// Writes all of it, so that a buffer with two holders is seen (by the value here, by ThreadSanitizer as a race).
void use(const Buffer& buffer, std::byte mark) {
    buffer.data()[0] = mark;
    buffer.data()[buffer.size() - 1] = mark;
    ASSERT_EQ(buffer.data()[0], mark);
    ASSERT_EQ(buffer.data()[buffer.size() - 1], mark);
}

void stress(bool with_executor) {
    const SystemClock clock;
    TimerThread timer(clock);
    ThreadPool executor("serve", 2);
    const MemoryShares shares = tight_shares();
    // A thread that serves may ask it for a buffer until the pool is gone.
    Hoard hoard;
    const auto pool = std::move(MemoryPool::create(shares, with_executor ? &executor : nullptr, &timer).value());
    pool->add_pressure_listener([&](MemoryUse) { return hoard.give(); });
    std::latch all_served(kThreads * kRounds);

    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
            std::mt19937_64 random(static_cast<std::uint64_t>(thread));
            const auto mark = static_cast<std::byte>(thread);
            for (int round = 0; round < kRounds; ++round) {
                const auto take_use = static_cast<MemoryUse>(random() % kMemoryUses);
                switch (random() % 3) {
                    case 0:
                        pool->take(take_use, [&, mark](Buffer buffer) {
                            use(buffer, mark);
                            buffer.reset();
                            all_served.count_down();
                        });
                        break;
                    case 1:
                        pool->take(MemoryUse::kReceive, [&, mark](Buffer buffer) {
                            use(buffer, mark);
                            pool->recharge(std::move(buffer), MemoryUse::kWrite, [&, mark](Buffer charged) {
                                use(charged, mark);
                                charged.reset();
                                all_served.count_down();
                            });
                        });
                        break;
                    default:
                        pool->take(MemoryUse::kRead, [&, mark](Buffer buffer) {
                            use(buffer, mark);
                            hoard.keep(std::move(buffer));
                            all_served.count_down();
                        });
                }
                const PoolUsage usage = pool->usage();
                std::size_t held = 0;
                for (std::size_t each = 0; each < kMemoryUses; ++each) {
                    ASSERT_LE(usage.in_use[each], shares.of[each].cap);
                    held += usage.in_use[each];
                }
                ASSERT_EQ(held + usage.free_buffers, usage.total_buffers);
            }
        });
    }
    std::atomic<bool> done = false;
    std::thread releaser([&] {
        while (!done) {
            pool->release_unused();
        }
    });
    for (std::thread& thread : threads) {
        thread.join();
    }
    all_served.wait();
    done = true;
    releaser.join();
    hoard.give_all();
    EXPECT_TRUE(testing::eventually([&] { return pool->usage().free_buffers == shares.total; }));
}

TEST(MemoryPoolStress, OnTheThreadsThatFree) {
    stress(false);
}

TEST(MemoryPoolStress, OnAnExecutor) {
    stress(true);
}

}  // namespace
}  // namespace ckptfs
