// SPDX-License-Identifier: Apache-2.0
#include "base/executors.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ckptfs {
namespace {

constexpr auto kDeadline = std::chrono::seconds(30);

struct Kind {
    std::unique_ptr<Executor> (*make)();
    int threads;
};

class AnyExecutor : public ::testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Executors, AnyExecutor,
                         ::testing::Values(Kind{&make_executor, processor_count()},
                                           Kind{[] { return make_blocking_executor(3); }, 3}));

TEST_P(AnyExecutor, RunsEveryTask) {
    constexpr int kTasks = 10'000;
    std::latch all(kTasks);
    const auto executor = GetParam().make();
    for (int task = 0; task < kTasks; ++task) {
        executor->post([&] { all.count_down(); });
    }
    all.wait();
}

TEST_P(AnyExecutor, RunsAsManyTasksAtOnceAsItHasThreads) {
    const int threads = GetParam().threads;
    // None can end before all have begun.
    std::latch all_begun(threads);
    std::latch all_ended(threads);
    const auto executor = GetParam().make();
    for (int task = 0; task < threads; ++task) {
        executor->post([&] {
            all_begun.arrive_and_wait();
            all_ended.count_down();
        });
    }
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (!all_ended.try_wait()) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "tasks wait for each other";
        std::this_thread::yield();
    }
}

TEST_P(AnyExecutor, RunsWhatWasPostedBeforeItGoes) {
    std::atomic<int> ran = 0;
    {
        const auto executor = GetParam().make();
        Executor* const raw = executor.get();
        for (int task = 0; task < 100; ++task) {
            executor->post([&ran, raw] { raw->post([&ran] { ++ran; }); });
        }
    }
    EXPECT_EQ(ran, 100);
}

TEST_P(AnyExecutor, LetsGoOfATaskBeforeItGoes) {
    auto owned = std::make_shared<int>(0);
    {
        const auto executor = GetParam().make();
        executor->post([owned] {});
    }
    EXPECT_EQ(owned.use_count(), 1);
}

TEST_P(AnyExecutor, TakesTasksFromManyThreads) {
    std::atomic<int> ran = 0;
    {
        const auto executor = GetParam().make();
        std::vector<std::thread> posters;
        for (int poster = 0; poster < 4; ++poster) {
            posters.emplace_back([&] {
                for (int task = 0; task < 1'000; ++task) {
                    executor->post([&] { ++ran; });
                }
            });
        }
        for (std::thread& poster : posters) {
            poster.join();
        }
    }
    EXPECT_EQ(ran, 4'000);
}

TEST(ThreadPool, RunsInOrderOnOneThread) {
    std::vector<int> order;
    {
        ThreadPool pool("one", 1);
        for (int task = 0; task < 100; ++task) {
            pool.post([&order, task] { order.push_back(task); });
        }
    }
    for (int task = 0; task < 100; ++task) {
        EXPECT_EQ(order[static_cast<std::size_t>(task)], task);
    }
}

TEST(ThreadPool, ItsThreadsAreDeafToSignals) {
    std::promise<bool> blocked;
    ThreadPool pool("deaf", 1);
    pool.post([&] {
        sigset_t mask;
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        blocked.set_value(sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGALRM) == 1);
    });
    EXPECT_TRUE(blocked.get_future().get());
    sigset_t mine;
    pthread_sigmask(SIG_SETMASK, nullptr, &mine);
    EXPECT_EQ(sigismember(&mine, SIGTERM), 0);
}

TEST(Executors, UrgentTasksComeBeforeOthersThreeToOne) {
    auto executor = make_blocking_executor(1);
    std::promise<void> busy;
    std::promise<void> begin;
    executor->post([&] {
        busy.set_value();
        begin.get_future().wait();
    });
    busy.get_future().wait();
    std::string order;
    for (int i = 0; i < 6; ++i) {
        executor->post([&order] { order += 'o'; });
    }
    for (int i = 0; i < 6; ++i) {
        executor->post_urgent([&order] { order += 'U'; });
    }
    begin.set_value();
    executor->stop();
    EXPECT_EQ(order, "UUUoUUUooooo");
}

}  // namespace
}  // namespace ckptfs
