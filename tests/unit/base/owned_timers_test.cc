// SPDX-License-Identifier: Apache-2.0
#include "base/owned_timers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/system_clock.h"
#include "base/timer_thread.h"

namespace ckptfs {
namespace {

// Tells of cancels: stop() has begun then, and nothing that is asked for from there on may run.
class ToldOfCancels final : public Timer {
public:
    explicit ToldOfCancels(Timer& inner) : inner_(inner) {}

    Id after(Milliseconds delay, std::function<void()> run) override { return inner_.after(delay, std::move(run)); }
    void cancel(Id id) override {
        cancelled.set_value();
        inner_.cancel(id);
    }

    std::promise<void> cancelled;

private:
    Timer& inner_;
};

class OwnedTimersTest : public ::testing::Test {
protected:
    SystemClock clock;
    TimerThread timer{clock};
    std::optional<OwnedTimers> owned{timer};
    std::atomic<int> runs = 0;
};

TEST_F(OwnedTimersTest, RunsWhatItWasGiven) {
    std::promise<void> ran;
    owned->after(Milliseconds(0), [&] { ran.set_value(); });
    ran.get_future().wait();
}

TEST_F(OwnedTimersTest, NothingRunsOnceItIsGone) {
    // The thread has no time for it before.
    std::promise<void> go_on;
    timer.after(Milliseconds(0), [&] { go_on.get_future().wait(); });
    owned->after(Milliseconds(0), [this] { ++runs; });
    owned.reset();
    go_on.set_value();
    std::promise<void> later;
    timer.after(Milliseconds(0), [&] { later.set_value(); });
    later.get_future().wait();
    EXPECT_EQ(runs, 0);
}

TEST_F(OwnedTimersTest, StopWaitsForWhatRuns) {
    std::promise<void> begun;
    std::promise<void> go_on;
    owned->after(Milliseconds(0), [&] {
        begun.set_value();
        go_on.get_future().wait();
        ++runs;
    });
    begun.get_future().wait();
    std::thread other([&] { go_on.set_value(); });
    owned->stop();
    EXPECT_EQ(runs, 1);
    other.join();
}

TEST_F(OwnedTimersTest, WhatRunsMayAskForMoreAlsoWhileItIsBeingStopped) {
    ToldOfCancels told(timer);
    OwnedTimers stopping(told);
    std::promise<void> begun;
    stopping.after(Milliseconds(0), [&] {
        begun.set_value();
        told.cancelled.get_future().wait();
        stopping.after(Milliseconds(0), [this] { ++runs; });
    });
    begun.get_future().wait();
    stopping.stop();
    std::promise<void> later;
    timer.after(Milliseconds(20), [&] { later.set_value(); });
    later.get_future().wait();
    EXPECT_EQ(runs, 0);
}

}  // namespace
}  // namespace ckptfs
