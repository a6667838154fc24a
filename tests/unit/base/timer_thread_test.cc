// SPDX-License-Identifier: Apache-2.0
#include "base/timer_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <vector>

#include "base/system_clock.h"

namespace ckptfs {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr auto kDeadline = std::chrono::seconds(30);

TEST(SystemClock, GoesForward) {
    const SystemClock clock;
    const SteadyTime before = clock.now();
    EXPECT_LE(before, clock.now());
    EXPECT_GT(clock.wall_now().time_since_epoch(), hours(24) * 365 * 50);
}

TEST(TimerThread, RunsNotBeforeItsTime) {
    const SystemClock clock;
    TimerThread timer(clock);
    const SteadyTime start = clock.now();
    std::promise<SteadyTime> ran;
    timer.after(milliseconds(20), [&] { ran.set_value(clock.now()); });
    auto future = ran.get_future();
    ASSERT_EQ(future.wait_for(kDeadline), std::future_status::ready);
    EXPECT_GE(future.get() - start, milliseconds(20));
}

TEST(TimerThread, RunsInOrderOfTime) {
    const SystemClock clock;
    TimerThread timer(clock);
    std::vector<int> order;
    std::promise<void> last;
    std::promise<void> all_set;
    // Holds the timer until all are in its queue.
    timer.after(milliseconds(0), [&] { all_set.get_future().wait(); });
    timer.after(milliseconds(30), [&] {
        order.push_back(3);
        last.set_value();
    });
    timer.after(milliseconds(10), [&] { order.push_back(1); });
    timer.after(milliseconds(20), [&] { order.push_back(2); });
    all_set.set_value();
    ASSERT_EQ(last.get_future().wait_for(kDeadline), std::future_status::ready);
    EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(TimerThread, AnEarlierTimeIsNotHeldUpByALaterOne) {
    const SystemClock clock;
    TimerThread timer(clock);
    timer.after(hours(1), [] {});
    std::promise<void> ran;
    timer.after(milliseconds(1), [&] { ran.set_value(); });
    EXPECT_EQ(ran.get_future().wait_for(kDeadline), std::future_status::ready);
}

TEST(TimerThread, ACancelledFunctionNeverRuns) {
    const SystemClock clock;
    TimerThread timer(clock);
    std::atomic<bool> ran = false;
    std::promise<void> hold;
    std::promise<void> held;
    timer.after(milliseconds(0), [&] {
        held.set_value();
        hold.get_future().wait();
    });
    held.get_future().wait();
    const Timer::Id id = timer.after(milliseconds(0), [&] { ran = true; });
    timer.cancel(id);
    std::promise<void> after;
    timer.after(milliseconds(0), [&] { after.set_value(); });
    hold.set_value();
    ASSERT_EQ(after.get_future().wait_for(kDeadline), std::future_status::ready);
    EXPECT_FALSE(ran);
}

TEST(TimerThread, CancelWaitsForAFunctionThatRuns) {
    const SystemClock clock;
    TimerThread timer(clock);
    std::promise<void> begun;
    std::promise<void> go_on;
    std::atomic<bool> ended = false;
    const Timer::Id id = timer.after(milliseconds(0), [&] {
        begun.set_value();
        go_on.get_future().wait();
        ended = true;
    });
    begun.get_future().wait();
    auto cancelled = std::async(std::launch::async, [&] {
        timer.cancel(id);
        return ended.load();
    });
    // Long enough for a cancel that does not wait to be seen.
    EXPECT_EQ(cancelled.wait_for(milliseconds(50)), std::future_status::timeout);
    go_on.set_value();
    ASSERT_EQ(cancelled.wait_for(kDeadline), std::future_status::ready);
    EXPECT_TRUE(cancelled.get());
}

TEST(TimerThread, CancellingWhatHasRunOrNeverWasReturns) {
    const SystemClock clock;
    TimerThread timer(clock);
    std::promise<void> ran;
    const Timer::Id id = timer.after(milliseconds(0), [&] { ran.set_value(); });
    ran.get_future().wait();
    timer.cancel(id);
    timer.cancel(id);
    timer.cancel(12'345);
}

TEST(TimerThread, AFunctionMaySetAndCancelOthers) {
    const SystemClock clock;
    TimerThread timer(clock);
    std::promise<void> done;
    std::atomic<bool> other_ran = false;
    timer.after(milliseconds(0), [&] {
        const Timer::Id other = timer.after(milliseconds(0), [&] { other_ran = true; });
        timer.cancel(other);
        timer.after(milliseconds(0), [&] { done.set_value(); });
    });
    ASSERT_EQ(done.get_future().wait_for(kDeadline), std::future_status::ready);
    EXPECT_FALSE(other_ran);
}

TEST(TimerThread, DropsWhatIsNotDueWhenItGoes) {
    const SystemClock clock;
    auto owned = std::make_shared<int>(0);
    {
        TimerThread timer(clock);
        timer.after(hours(1), [owned] { FAIL(); });
    }
    EXPECT_EQ(owned.use_count(), 1);
}

TEST(TimerThread, ManyThreadsSetAndCancel) {
    const SystemClock clock;
    std::atomic<int> ran = 0;
    std::atomic<int> kept = 0;
    std::promise<void> last;
    {
        TimerThread timer(clock);
        std::vector<std::thread> threads;
        for (int thread = 0; thread < 4; ++thread) {
            threads.emplace_back([&, thread] {
                for (int round = 0; round < 500; ++round) {
                    const Timer::Id id = timer.after(milliseconds(round % 3), [&] { ++ran; });
                    if ((round + thread) % 2 == 0) {
                        timer.cancel(id);
                    } else {
                        ++kept;
                    }
                }
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        timer.after(milliseconds(5), [&] { last.set_value(); });
        ASSERT_EQ(last.get_future().wait_for(kDeadline), std::future_status::ready);
    }
    EXPECT_GE(ran, kept);
    EXPECT_EQ(kept, 1'000);
}

}  // namespace
}  // namespace ckptfs
