// SPDX-License-Identifier: Apache-2.0
#include "disk/disk_threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "support/eventually.h"
#include "support/hand_timer.h"

namespace ckptfs {

using namespace testing;
namespace {

constexpr Milliseconds kLimit{1000};

class DiskThreadsTest : public ::testing::Test {
protected:
    // What it returns is kept until it is told to come back.
    DiskThreads::Deliver hang() {
        begun.set_value();
        is_back.wait();
        return [this] { ++delivered; };
    }

    HandTimer timer;
    std::promise<void> begun;
    std::promise<void> comes_back;
    std::shared_future<void> is_back = comes_back.get_future().share();
    std::atomic<int> delivered = 0;
    std::atomic<int> late = 0;
};

TEST_F(DiskThreadsTest, WhatComesInTimeIsDelivered) {
    DiskThreads threads(2, timer);
    threads.within(
        kLimit, [this] { return [this] { ++delivered; }; }, [this] { ++late; });
    EXPECT_TRUE(threads.stop(kLimit));
    EXPECT_EQ(timer.waiting(kLimit), 0U);
    EXPECT_EQ(delivered, 1);
    EXPECT_EQ(late, 0);
}

TEST_F(DiskThreadsTest, WhatComesLateIsNot) {
    DiskThreads threads(1, timer);
    threads.within(
        kLimit, [this] { return hang(); }, [this] { ++late; });
    begun.get_future().wait();
    EXPECT_FALSE(threads.hangs());
    timer.run(kLimit);
    EXPECT_EQ(late, 1);
    EXPECT_TRUE(threads.hangs());
    // What waits behind it for too long is not even begun.
    std::atomic<int> begun_late = 0;
    threads.within(
        kLimit, [&] { return [&] { ++begun_late; }; }, [this] { ++late; });
    timer.run(kLimit);
    EXPECT_EQ(late, 2);
    comes_back.set_value();
    EXPECT_TRUE(eventually([&] { return !threads.hangs(); }));
    EXPECT_TRUE(threads.stop(kLimit));
    EXPECT_EQ(delivered + begun_late, 0);
}

int threads_alive() {
    int alive = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::getline(std::ifstream(thread.path() / "comm"), name);
        alive += name == "ckptfs-disk" ? 1 : 0;
    }
    return alive;
}

TEST_F(DiskThreadsTest, AreLeftToADiskThatHangs) {
    const auto task = std::make_shared<int>();
    std::atomic<int> run = 0;
    {
        DiskThreads threads(2, timer);
        threads.within(
            kLimit, [this, task] { return hang(); }, [this] { ++late; });
        begun.get_future().wait();
        EXPECT_FALSE(threads.stop(Milliseconds(1)));
        EXPECT_EQ(late, 1) << "while all that it uses exists";
        threads.post([&] { ++run; });
        threads.within(
            kLimit, [&] { return [&] { ++run; }; }, [this] { ++late; });
        EXPECT_EQ(late, 2);
        EXPECT_EQ(run, 0);
        timer.run(kLimit);
        EXPECT_EQ(late, 2);
    }
    comes_back.set_value();
    EXPECT_TRUE(eventually([&] { return task.use_count() == 1; }));
    EXPECT_TRUE(eventually([] { return threads_alive() == 0; }));
    EXPECT_EQ(run, 0) << "its owner has ended";
    EXPECT_EQ(delivered, 0);
}

TEST_F(DiskThreadsTest, OneRunsWhatItIsGivenInOrderToTheEnd) {
    DiskThreads threads(1, timer);
    std::vector<int> order;
    for (int number = 0; number < 100; ++number) {
        threads.post([&order, number] { order.push_back(number); });
    }
    EXPECT_TRUE(threads.stop(kLimit));
    threads.post([&order] { order.push_back(100); });
    ASSERT_EQ(order.size(), 101U);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

}  // namespace
}  // namespace ckptfs
