// SPDX-License-Identifier: Apache-2.0
#include "base/memory_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/executors.h"
#include "base/system_clock.h"
#include "base/timer_thread.h"

namespace ckptfs {
namespace {

using ::testing::ElementsAre;

constexpr auto kDeadline = std::chrono::seconds(30);

// `total` buffers with one reserved for each use and no other limits.
MemoryShares shares_of(std::size_t total) {
    MemoryShares shares;
    shares.total = total;
    shares.of.fill(MemoryShare{1, total});
    return shares;
}

MemoryShares without_reserves(std::size_t total) {
    MemoryShares shares;
    shares.total = total;
    shares.of.fill(MemoryShare{0, total});
    return shares;
}

std::unique_ptr<MemoryPool> pool_of(const MemoryShares& shares, Executor* executor = nullptr, Timer* timer = nullptr) {
    return std::move(MemoryPool::create(shares, executor, timer).value());
}

std::size_t waiting(const BufferPool& pool, MemoryUse use) {
    return pool.usage().waiting[static_cast<std::size_t>(use)];
}

std::size_t in_use(const BufferPool& pool, MemoryUse use) {
    return pool.usage().in_use[static_cast<std::size_t>(use)];
}

// One that is known to be free.
Buffer take_one(BufferPool& pool, MemoryUse use) {
    Buffer taken;
    pool.take(use, [&](Buffer buffer) { taken = std::move(buffer); });
    return taken;
}

std::vector<Buffer> take_all(BufferPool& pool, MemoryUse use) {
    std::vector<Buffer> taken;
    while (auto buffer = pool.try_take(use)) {
        taken.push_back(std::move(*buffer));
    }
    return taken;
}

TEST(MemoryPool, HandsOutWholePagesOfItsBudget) {
    const auto pool = pool_of(without_reserves(4));
    std::vector<Buffer> buffers = take_all(*pool, MemoryUse::kWrite);
    ASSERT_EQ(buffers.size(), 4U);
    for (std::size_t index = 0; index < buffers.size(); ++index) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers[index].data()) % 4096, 0U);
        EXPECT_EQ(buffers[index].size(), BufferPool::kBufferSize);
        std::memset(buffers[index].data(), static_cast<int>(index), buffers[index].size());
    }
    for (std::size_t index = 0; index < buffers.size(); ++index) {
        EXPECT_EQ(buffers[index].bytes().front(), static_cast<std::byte>(index));
        EXPECT_EQ(buffers[index].bytes().back(), static_cast<std::byte>(index));
    }
}

TEST(MemoryPool, ReusesTheBufferFreedLast) {
    const auto pool = pool_of(without_reserves(8));
    std::vector<Buffer> buffers = take_all(*pool, MemoryUse::kWrite);
    std::byte* const warm = buffers[3].data();
    buffers[5].reset();
    buffers[3].reset();
    EXPECT_EQ(pool->try_take(MemoryUse::kRead)->data(), warm);
}

// Whole pages of it that have memory.
std::size_t resident_pages(const std::byte* data) {
    std::vector<unsigned char> pages(BufferPool::kBufferSize / static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
    EXPECT_EQ(mincore(const_cast<std::byte*>(data), BufferPool::kBufferSize, pages.data()), 0);
    return static_cast<std::size_t>(
        std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1U) != 0; }));
}

void touch(const std::vector<Buffer>& buffers) {
    for (const Buffer& buffer : buffers) {
        std::memset(buffer.data(), 7, buffer.size());
    }
}

TEST(MemoryPool, ReleasesWhatWasNotNeededSinceTheLastTime) {
    const auto pool = pool_of(without_reserves(8));
    EXPECT_EQ(pool->release_unused(), 0U);
    EXPECT_EQ(pool->usage().touched_buffers, 0U);
    std::vector<Buffer> buffers = take_all(*pool, MemoryUse::kWrite);
    touch(buffers);
    std::vector<const std::byte*> freed;
    for (int count = 0; count < 6; ++count) {
        freed.push_back(buffers.back().data());
        buffers.pop_back();
    }
    EXPECT_EQ(pool->usage().touched_buffers, 8U);
    // All of them were in use a moment ago.
    EXPECT_EQ(pool->release_unused(), 0U);
    {
        const Buffer one = take_one(*pool, MemoryUse::kRead);
        const Buffer other = take_one(*pool, MemoryUse::kRead);
    }
    // The last two were needed, and the other four were not.
    EXPECT_EQ(pool->release_unused(), 4U);
    EXPECT_EQ(pool->usage().touched_buffers, 4U);
    for (std::size_t index = 0; index < freed.size(); ++index) {
        EXPECT_EQ(resident_pages(freed[index]) == 0, index < 4) << index;
    }
    EXPECT_EQ(pool->release_unused(), 2U);
    EXPECT_EQ(pool->release_unused(), 0U);
    EXPECT_EQ(pool->usage().touched_buffers, 2U);
    for (const Buffer& buffer : buffers) {
        EXPECT_EQ(buffer.data()[BufferPool::kBufferSize - 1], std::byte{7});
    }
}

// Larger pages than 4 KiB: the first and the last of a buffer may hold bytes of its neighbours, which are not given
// away.
TEST(MemoryPool, ReleasesNoPageOfWhichANeighbourHasAPart) {
    constexpr std::size_t kSize = BufferPool::kBufferSize;
    EXPECT_EQ(whole_pages(16 * kSize, kSize, 4096), (WholePages{0, kSize}));
    for (const std::size_t page : {std::size_t{16} << 10, std::size_t{64} << 10}) {
        for (std::uintptr_t index = 0; index < 40; ++index) {
            const std::uintptr_t begin = page * 1000 + index * kSize;
            const WholePages pages = whole_pages(begin, kSize, page);
            EXPECT_EQ((begin + pages.offset) % page, 0U);
            EXPECT_EQ(pages.size % page, 0U);
            EXPECT_LE(pages.offset + pages.size, kSize);
            EXPECT_LT(pages.offset, page);
            EXPECT_LT(kSize - pages.offset - pages.size, page);
        }
    }
    EXPECT_EQ(whole_pages(4096, 8192, 65536).size, 0U);
    EXPECT_EQ(whole_pages(65536, 8192, 65536).size, 0U);
}

TEST(MemoryPool, WhatWasReleasedIsTakenLast) {
    const auto pool = pool_of(without_reserves(4));
    { touch(take_all(*pool, MemoryUse::kWrite)); }
    pool->release_unused();
    std::byte* warm = nullptr;
    {
        const Buffer needed = take_one(*pool, MemoryUse::kRead);
        warm = needed.data();
    }
    EXPECT_EQ(pool->release_unused(), 3U);
    const Buffer first = take_one(*pool, MemoryUse::kRead);
    EXPECT_EQ(first.data(), warm);
    EXPECT_EQ(pool->usage().touched_buffers, 1U);
    const Buffer second = take_one(*pool, MemoryUse::kRead);
    EXPECT_EQ(pool->usage().touched_buffers, 2U);
    EXPECT_EQ(second.data()[0], std::byte{0});
}

TEST(MemoryPool, KeepsReservesForTheOtherUses) {
    const auto pool = pool_of(shares_of(8));
    const std::vector<Buffer> written = take_all(*pool, MemoryUse::kWrite);
    EXPECT_EQ(written.size(), 4U);
    EXPECT_TRUE(pool->try_take(MemoryUse::kRead).has_value());
    EXPECT_TRUE(pool->try_take(MemoryUse::kCommit).has_value());
    EXPECT_TRUE(pool->try_take(MemoryUse::kReceive).has_value());
}

TEST(MemoryPool, CountsWhatIsHeld) {
    const auto pool = pool_of(shares_of(8));
    {
        const Buffer first = take_one(*pool, MemoryUse::kRead);
        const Buffer second = take_one(*pool, MemoryUse::kWrite);
        EXPECT_EQ(in_use(*pool, MemoryUse::kRead), 1U);
        EXPECT_EQ(in_use(*pool, MemoryUse::kWrite), 1U);
        EXPECT_EQ(pool->usage().free_buffers, 6U);
    }
    EXPECT_EQ(pool->usage().total_buffers, 8U);
    EXPECT_EQ(pool->usage().free_buffers, 8U);
    EXPECT_EQ(pool->usage().peak_in_use, 2U);
}

TEST(MemoryPool, TakesAtOnceWhenOneIsFree) {
    const auto pool = pool_of(shares_of(8));
    bool ready = false;
    pool->take(MemoryUse::kRead, [&](Buffer buffer) {
        ready = true;
        EXPECT_EQ(buffer.use(), MemoryUse::kRead);
        EXPECT_TRUE(buffer);
    });
    EXPECT_TRUE(ready);
}

TEST(MemoryPool, ServesWaitersInTheirOrder) {
    const auto pool = pool_of(without_reserves(3));
    std::vector<Buffer> held = take_all(*pool, MemoryUse::kWrite);
    std::vector<std::string> served;
    std::vector<Buffer> granted;
    const auto wait = [&](MemoryUse use, const std::string& name) {
        pool->take(use, [&, name](Buffer buffer) {
            served.push_back(name);
            granted.push_back(std::move(buffer));
        });
    };
    wait(MemoryUse::kWrite, "first write");
    wait(MemoryUse::kRead, "read");
    wait(MemoryUse::kWrite, "second write");
    EXPECT_TRUE(served.empty());
    EXPECT_EQ(waiting(*pool, MemoryUse::kWrite), 2U);
    held.clear();
    EXPECT_THAT(served, ElementsAre("first write", "read", "second write"));
    EXPECT_EQ(waiting(*pool, MemoryUse::kWrite), 0U);
}

TEST(MemoryPool, NobodyOvertakesAWaiterOfTheSameUse) {
    MemoryShares shares = without_reserves(4);
    shares.of[static_cast<std::size_t>(MemoryUse::kWrite)].cap = 1;
    const auto pool = pool_of(shares);
    Buffer held = take_one(*pool, MemoryUse::kWrite);
    bool served = false;
    pool->take(MemoryUse::kWrite, [&](Buffer) { served = true; });
    EXPECT_FALSE(pool->try_take(MemoryUse::kWrite).has_value());
    // A use at its cap does not stop another.
    EXPECT_TRUE(pool->try_take(MemoryUse::kRead).has_value());
    EXPECT_FALSE(served);
    held.reset();
    EXPECT_TRUE(served);
}

TEST(MemoryPool, RechargesWithoutCopying) {
    const auto pool = pool_of(shares_of(8));
    Buffer received = take_one(*pool, MemoryUse::kReceive);
    std::byte* const data = received.data();
    data[7] = std::byte{42};
    pool->recharge(std::move(received), MemoryUse::kWrite, [&](Buffer buffer) {
        EXPECT_EQ(buffer.data(), data);
        EXPECT_EQ(buffer.data()[7], std::byte{42});
        EXPECT_EQ(buffer.use(), MemoryUse::kWrite);
        EXPECT_EQ(in_use(*pool, MemoryUse::kWrite), 1U);
        EXPECT_EQ(in_use(*pool, MemoryUse::kReceive), 0U);
    });
    EXPECT_EQ(pool->usage().free_buffers, 8U);
}

TEST(MemoryPool, ARechargeWaitsAndThenFreesItsOldPlace) {
    MemoryShares shares = without_reserves(4);
    shares.of[static_cast<std::size_t>(MemoryUse::kWrite)].cap = 1;
    shares.of[static_cast<std::size_t>(MemoryUse::kReceive)].cap = 1;
    const auto pool = pool_of(shares);
    Buffer written = take_one(*pool, MemoryUse::kWrite);
    std::vector<std::string> order;
    Buffer recharged;
    pool->recharge(take_one(*pool, MemoryUse::kReceive), MemoryUse::kWrite, [&](Buffer buffer) {
        order.emplace_back("recharged");
        recharged = std::move(buffer);
    });
    pool->take(MemoryUse::kReceive, [&](Buffer) { order.emplace_back("received"); });
    EXPECT_TRUE(order.empty());
    EXPECT_EQ(in_use(*pool, MemoryUse::kReceive), 1U);
    written.reset();
    EXPECT_THAT(order, ElementsAre("recharged", "received"));
}

TEST(MemoryPool, ARechargeThatNeedNotWaitServesThoseBehindItsOldPlace) {
    MemoryShares shares = without_reserves(4);
    shares.of[static_cast<std::size_t>(MemoryUse::kReceive)].cap = 1;
    const auto pool = pool_of(shares);
    Buffer received = take_one(*pool, MemoryUse::kReceive);
    bool served = false;
    pool->take(MemoryUse::kReceive, [&](Buffer) { served = true; });
    pool->recharge(std::move(received), MemoryUse::kWrite, [](Buffer) {});
    EXPECT_TRUE(served);
}

TEST(MemoryPool, TryRechargeChangesTheUseOfABufferInItsPlace) {
    const auto pool = pool_of(shares_of(8));
    Buffer buffer = take_one(*pool, MemoryUse::kReceive);
    const std::byte* const data = buffer.data();
    EXPECT_TRUE(pool->try_recharge(buffer, MemoryUse::kWrite));
    EXPECT_EQ(buffer.data(), data);
    EXPECT_EQ(buffer.use(), MemoryUse::kWrite);
    EXPECT_EQ(in_use(*pool, MemoryUse::kWrite), 1U);
    EXPECT_EQ(in_use(*pool, MemoryUse::kReceive), 0U);
}

TEST(MemoryPool, TryRechargeTakesNoOthersTurn) {
    MemoryShares shares = without_reserves(4);
    shares.of[static_cast<std::size_t>(MemoryUse::kWrite)].cap = 1;
    const auto pool = pool_of(shares);
    Buffer written = take_one(*pool, MemoryUse::kWrite);
    Buffer received = take_one(*pool, MemoryUse::kReceive);
    EXPECT_FALSE(pool->try_recharge(received, MemoryUse::kWrite)) << "the use is at its cap";
    EXPECT_EQ(received.use(), MemoryUse::kReceive);
    bool served = false;
    pool->take(MemoryUse::kWrite, [&](Buffer) { served = true; });
    EXPECT_FALSE(pool->try_recharge(received, MemoryUse::kRead)) << "another waits";
    written.reset();
    EXPECT_TRUE(served);
    EXPECT_TRUE(pool->try_recharge(received, MemoryUse::kRead));
}

TEST(MemoryPool, SharedOwnersKeepABuffer) {
    const auto pool = pool_of(shares_of(8));
    Buffer buffer = take_one(*pool, MemoryUse::kWrite);
    auto shared = std::move(buffer).share();
    auto copy = shared;
    shared.reset();
    EXPECT_EQ(in_use(*pool, MemoryUse::kWrite), 1U);
    copy.reset();
    EXPECT_EQ(in_use(*pool, MemoryUse::kWrite), 0U);
}

TEST(MemoryPool, AsksListenersInOrderUntilNobodyWaits) {
    const auto pool = pool_of(without_reserves(2));
    std::vector<Buffer> cache = take_all(*pool, MemoryUse::kRead);
    std::vector<std::string> asked;
    pool->add_pressure_listener([&](MemoryUse use) {
        EXPECT_EQ(use, MemoryUse::kWrite);
        asked.emplace_back("empty-handed");
        return false;
    });
    pool->add_pressure_listener([&](MemoryUse) {
        asked.emplace_back("cache");
        cache.pop_back();
        return !cache.empty();
    });
    pool->add_pressure_listener([&](MemoryUse) {
        asked.emplace_back("never needed");
        return true;
    });
    bool served = false;
    pool->take(MemoryUse::kWrite, [&](Buffer) { served = true; });
    EXPECT_TRUE(served);
    EXPECT_THAT(asked, ElementsAre("empty-handed", "cache"));
    EXPECT_EQ(cache.size(), 1U);
}

TEST(MemoryPool, AListenerThatOnlyClaimsToGiveDoesNotKeepUs) {
    const auto pool = pool_of(without_reserves(2));
    std::vector<Buffer> held = take_all(*pool, MemoryUse::kRead);
    pool->add_pressure_listener([](MemoryUse) { return true; });
    pool->take(MemoryUse::kWrite, [](Buffer) {});
    EXPECT_EQ(waiting(*pool, MemoryUse::kWrite), 1U);
    held.clear();
}

TEST(MemoryPool, CallbacksMayUseThePool) {
    const auto pool = pool_of(without_reserves(2));
    std::vector<Buffer> cache = take_all(*pool, MemoryUse::kRead);
    pool->add_pressure_listener([&](MemoryUse) {
        (void)pool->usage();
        (void)pool->try_take(MemoryUse::kCommit);
        cache.clear();
        return false;
    });
    int served = 0;
    pool->take(MemoryUse::kWrite, [&](Buffer first) {
        ++served;
        pool->add_pressure_listener([](MemoryUse) { return false; });
        pool->recharge(std::move(first), MemoryUse::kRead, [&](Buffer second) {
            ++served;
            second.reset();
            pool->take(MemoryUse::kWrite, [&](Buffer) { ++served; });
        });
    });
    EXPECT_EQ(served, 3);
}

TEST(MemoryPool, AHundredThousandWaitersDoNotOverflowTheStack) {
    const auto pool = pool_of(without_reserves(1));
    Buffer held = take_one(*pool, MemoryUse::kWrite);
    int served = 0;
    for (int waiter = 0; waiter < 100'000; ++waiter) {
        // Each frees its buffer inside the callback, which serves the next.
        pool->take(MemoryUse::kWrite, [&](Buffer) { ++served; });
    }
    held.reset();
    EXPECT_EQ(served, 100'000);
}

TEST(MemoryPool, ALoopOfTakesDoesNotOverflowTheStack) {
    const auto pool = pool_of(without_reserves(1));
    int rounds = 0;
    std::function<void(Buffer)> next = [&](Buffer buffer) {
        buffer.reset();
        if (++rounds < 100'000) {
            pool->take(MemoryUse::kWrite, next);
        }
    };
    pool->take(MemoryUse::kWrite, next);
    EXPECT_EQ(rounds, 100'000);
}

TEST(MemoryPool, WaitersAreServedOnTheExecutor) {
    ThreadPool executor("serve", 1);
    const auto pool = pool_of(without_reserves(1), &executor);
    Buffer held = take_one(*pool, MemoryUse::kWrite);
    std::promise<std::thread::id> served;
    pool->take(MemoryUse::kWrite, [&](Buffer buffer) {
        buffer.reset();
        served.set_value(std::this_thread::get_id());
    });
    held.reset();
    auto future = served.get_future();
    ASSERT_EQ(future.wait_for(kDeadline), std::future_status::ready);
    EXPECT_NE(future.get(), std::this_thread::get_id());
}

TEST(MemoryPool, AsksAgainWhileSomebodyWaits) {
    for (const bool with_executor : {false, true}) {
        const SystemClock clock;
        TimerThread timer(clock);
        ThreadPool executor("serve", 1);
        const auto pool = pool_of(without_reserves(1), with_executor ? &executor : nullptr, &timer);
        // A block that is in flight when it is first asked for, and can be given the third time.
        std::mutex mutex;
        Buffer block = take_one(*pool, MemoryUse::kRead);
        int asked = 0;
        pool->add_pressure_listener([&](MemoryUse) {
            Buffer given;
            const std::lock_guard lock(mutex);
            if (++asked == 3) {
                given = std::move(block);
            }
            return false;
        });
        std::promise<void> served;
        pool->take(MemoryUse::kWrite, [&](Buffer buffer) {
            buffer.reset();
            served.set_value();
        });
        EXPECT_EQ(served.get_future().wait_for(kDeadline), std::future_status::ready);
    }
}

TEST(MemoryPool, EndsWithoutWaitingForTheTimer) {
    const SystemClock clock;
    TimerThread timer(clock);
    const auto pool = pool_of(without_reserves(1), nullptr, &timer);
    Buffer held = take_one(*pool, MemoryUse::kWrite);
    pool->take(MemoryUse::kWrite, [](Buffer) {});
    held.reset();
}

TEST(MemoryPoolDeathTest, ABufferThatOutlivesThePoolEndsTheProgram) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            auto pool = pool_of(without_reserves(2));
            const Buffer held = take_one(*pool, MemoryUse::kWrite);
            pool.reset();
        },
        "1 buffers are held");
}

TEST(MemoryPool, ABudgetThatCannotBeMappedIsAnError) {
    MemoryShares shares = without_reserves(std::size_t{1} << 40);
    const auto pool = MemoryPool::create(shares, nullptr, nullptr);
    ASSERT_FALSE(pool.has_value());
    EXPECT_EQ(pool.error().errno_value, ENOMEM);
}

}  // namespace
}  // namespace ckptfs
