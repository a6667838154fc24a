// SPDX-License-Identifier: Apache-2.0
#include "daemon/service.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <stdlib.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <future>
#include <thread>

#include "base/system_clock.h"
#include "support/eventually.h"
#include "support/memory_file_system.h"
#include "support/temporary_directory.h"

namespace ckptfs {
namespace {

constexpr std::chrono::seconds kPatience{30};

class ServiceTest : public ::testing::Test {
protected:
    ServiceTest() {
        auto server = ControlServer::create(directory_ + "/run", "/mnt");
        EXPECT_TRUE(server);
        control_ = std::make_unique<ControlServer>(std::move(*server));
        service_ = Service::create(take_over_signals().value(), control_.get(), {}).value();
    }

    // Runs the service on a thread that signals can be sent to.
    std::future<Service::Outcome> run(Milliseconds drain_timeout) {
        std::promise<Service::Outcome> promise;
        auto future = promise.get_future();
        thread_ = std::jthread([this, drain_timeout, promise = std::move(promise)]() mutable {
            promise.set_value(service_->run(fs_, clock_, drain_timeout));
        });
        return future;
    }

    const testing::TemporaryDirectory temporary_;
    const std::string directory_ = temporary_.path();
    SystemClock clock_;
    fs::MemoryFileSystem fs_{{}};
    std::unique_ptr<ControlServer> control_;
    std::unique_ptr<Service> service_;
    std::jthread thread_;
};

constexpr Milliseconds kLong{60'000};

TEST_F(ServiceTest, EndsWhenUnmounted) {
    auto outcome = run(kLong);
    service_->session_ended();
    EXPECT_TRUE(outcome.get().lost.empty());
}

TEST_F(ServiceTest, SaysThatNoMoreRequestsWillCome) {
    fs_.hold("drain");
    auto outcome = run(kLong);
    EXPECT_FALSE(fs_.is_disconnected());
    service_->session_ended();
    EXPECT_TRUE(testing::eventually([this] { return fs_.is_disconnected(); }));
    fs_.let_go();
    EXPECT_TRUE(outcome.get().lost.empty());
}

TEST_F(ServiceTest, EndsBySignal) {
    auto outcome = run(kLong);
    pthread_kill(thread_.native_handle(), SIGTERM);
    EXPECT_EQ(outcome.get().reason, "signal TERM");
}

TEST_F(ServiceTest, EndsByAHangupOnlyIfToldSo) {
    auto ended = run(kLong);
    pthread_kill(thread_.native_handle(), SIGHUP);
    EXPECT_EQ(ended.get().reason, "signal HUP") << "nobody was asked";
    thread_.join();
    std::atomic<int> asked = 0;
    Service::Events events;
    events.hung_up = [&asked] { return ++asked == 2; };
    service_ = Service::create(take_over_signals().value(), control_.get(), events).value();
    auto goes_on = run(kLong);
    pthread_kill(thread_.native_handle(), SIGHUP);
    EXPECT_TRUE(testing::eventually([&asked] { return asked == 1; }));
    EXPECT_EQ(goes_on.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    pthread_kill(thread_.native_handle(), SIGHUP);
    EXPECT_EQ(goes_on.get().reason, "signal HUP");
}

TEST_F(ServiceTest, WaitsForTheDrainAndTellsProgress) {
    fs_.hold("drain");
    auto outcome = run(kLong);
    std::vector<std::string> lines;
    std::thread client([&] {
        EXPECT_TRUE(call_daemon(control_path(directory_ + "/run", "/mnt"), geteuid(), "unmount", kPatience,
                                [&](std::string_view line) {
                                    if (lines.empty()) {
                                        fs_.let_go();
                                    }
                                    lines.emplace_back(line);
                                }));
    });
    EXPECT_EQ(outcome.get().reason, "ckptfs unmount");
    control_.reset();
    client.join();
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines.front(), "progress 0 0 0");
}

TEST_F(ServiceTest, WaitsUntilWhatIsGivenUpHasEnded) {
    fs_.hold("drain");
    fs_.hold("abandon");
    auto outcome = run(Milliseconds(10));
    service_->session_ended();
    EXPECT_EQ(outcome.wait_for(Milliseconds(200)), std::future_status::timeout);
    fs_.let_go();
    EXPECT_EQ(outcome.wait_for(Milliseconds(5000)), std::future_status::ready);
}

TEST_F(ServiceTest, GivesUpAfterTheTimeoutAndNamesWhatIsLost) {
    fs_.hold("drain");
    fs_.set_abandoned({"run/a.pt"});
    auto outcome = run(Milliseconds(10));
    service_->session_ended();
    EXPECT_EQ(outcome.get().lost, std::vector<std::string>{"run/a.pt"});
    // The late replies find their events alive.
    service_.reset();
    fs_.let_go();
}

TEST_F(ServiceTest, WhatIsHandedOverIsNeitherWaitedForNorGivenUp) {
    fs_.hold("drain");
    fs_.set_abandoned({"run/a.pt"});
    std::atomic<bool> is_handed_over = false;
    Service::Events events;
    events.handed_over = [&] { return is_handed_over.load(); };
    service_ = Service::create(take_over_signals().value(), nullptr, events).value();
    auto outcome = run(kLong);
    service_->session_ended();
    EXPECT_EQ(outcome.wait_for(Milliseconds(50)), std::future_status::timeout);
    is_handed_over = true;
    EXPECT_TRUE(outcome.get().lost.empty());
    service_.reset();
    fs_.let_go();
}

TEST_F(ServiceTest, BeatsFromTheBeginningToTheEndAndTellsOfTheDrain) {
    fs_.hold("drain");
    std::atomic<int> beats = 0;
    std::atomic<int> drains = 0;
    Service::Events events;
    events.heartbeat_period = Milliseconds(5);
    events.heartbeat = [&] { ++beats; };
    events.draining = [&](const DrainProgress&) { ++drains; };
    service_ = Service::create(take_over_signals().value(), nullptr, events).value();
    auto outcome = run(kLong);
    EXPECT_TRUE(testing::eventually([&] { return beats > 2; }));
    EXPECT_EQ(drains, 0);
    service_->session_ended();
    EXPECT_TRUE(testing::eventually([&] { return drains > 1; }));
    const int before = beats;
    EXPECT_TRUE(testing::eventually([&] { return beats > before; }));
    fs_.let_go();
    EXPECT_TRUE(outcome.get().lost.empty());
}

}  // namespace
}  // namespace ckptfs
