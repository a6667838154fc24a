// SPDX-License-Identifier: Apache-2.0
#include "daemon/liveness.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace ckptfs {
namespace {

// Keeps what it is given until it is told to run it.
class HeldTasks final : public Executor, public Timer {
public:
    void post(std::function<void()> task) override { tasks_.push_back(std::move(task)); }
    Id after(Milliseconds /*delay*/, std::function<void()> run) override {
        tasks_.push_back(std::move(run));
        return 1;
    }
    void cancel(Id /*id*/) override {}
    void run() {
        for (const auto& task : std::exchange(tasks_, {})) {
            task();
        }
    }

private:
    std::vector<std::function<void()>> tasks_;
};

class LivenessTest : public ::testing::Test {
protected:
    HeldTasks executor_;
    HeldTasks timer_;
    Milliseconds longest_{0};
    Liveness liveness_{{executor_, timer_, [this] { return longest_; }}, Milliseconds(30'000)};
};

TEST_F(LivenessTest, IsAliveWhileEverythingAnswers) {
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(liveness_.check(), "");
        executor_.run();
        timer_.run();
    }
}

TEST_F(LivenessTest, AnExecutorThatRunsNothingIsStuckUntilItRunsAgain) {
    EXPECT_EQ(liveness_.check(), "");
    timer_.run();
    EXPECT_NE(liveness_.check().find("no computation"), std::string::npos);
    EXPECT_NE(liveness_.check().find("no computation"), std::string::npos);
    executor_.run();
    EXPECT_EQ(liveness_.check(), "");
}

TEST_F(LivenessTest, ATimerThatIsLateIsStuck) {
    EXPECT_EQ(liveness_.check(), "");
    executor_.run();
    EXPECT_NE(liveness_.check().find("timer"), std::string::npos);
}

TEST_F(LivenessTest, AWorkerThatDoesNotComeBackIsStuck) {
    longest_ = Milliseconds(30'000);
    EXPECT_EQ(liveness_.check(), "");
    executor_.run();
    timer_.run();
    longest_ = Milliseconds(30'001);
    EXPECT_NE(liveness_.check().find("request of the kernel"), std::string::npos);
}

}  // namespace
}  // namespace ckptfs
