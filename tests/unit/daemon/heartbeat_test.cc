// SPDX-License-Identifier: Apache-2.0
#include "daemon/heartbeat.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "support/fake_store.h"
#include "support/manual_clock.h"
#include "support/stepped_timer.h"

namespace ckptfs {
namespace {

const std::string kKey = "run/.ckptfs/mounts/uuid";

class HeartbeatTest : public ::testing::Test {
protected:
    bool stop() {
        bool gone = false;
        heartbeat_.stop([&gone] { gone = true; });
        return gone;
    }

    testing::FakeStore store_;
    testing::SteppedTimer timer_;
    double random_ = 0.5;
    testing::ManualClock clock_;
    Heartbeat heartbeat_{{store_, timer_, clock_, [this] { return random_; }}, kKey, "node1"};
};

TEST_F(HeartbeatTest, BeatsAgainAndAgainAndIsGoneAfterwards) {
    EXPECT_TRUE(store_.keys().empty());
    EXPECT_EQ(timer_.run(), Milliseconds(600'000));
    EXPECT_EQ(store_.content(kKey), heartbeat_text("node1", clock_.wall_now()));
    random_ = 0;
    timer_.run();
    EXPECT_EQ(timer_.run(), Milliseconds(540'000));
    EXPECT_EQ(store_.calls(testing::Operation::kPut), 3);
    EXPECT_TRUE(stop());
    EXPECT_TRUE(store_.keys().empty());
    EXPECT_EQ(timer_.waiting(), 0U);
}

// The store's, once it is known.
class CorrectedClock final : public Clock {
public:
    [[nodiscard]] SteadyTime now() const override { return clock.now(); }
    [[nodiscard]] WallTime wall_now() const override { return clock.wall_now() + ahead; }

    testing::ManualClock clock;
    Milliseconds ahead{0};
};

TEST_F(HeartbeatTest, TellsTheEarliestTimeAtWhichTheMountMayHaveBegun) {
    const std::string key = "run/.ckptfs/mounts/other";
    CorrectedClock clock;
    const WallTime mounted = clock.wall_now();
    clock.ahead = std::chrono::hours(2);
    testing::SteppedTimer timer;
    const Heartbeat heartbeat({store_, timer, clock, [] { return 0.5; }}, key, "node1");
    clock.clock.move(std::chrono::minutes(10));
    clock.ahead = Milliseconds(0);
    timer.run();
    EXPECT_EQ(store_.content(key), heartbeat_text("node1", mounted));
    // It was suspended: the steady clock stood still.
    clock.ahead = std::chrono::hours(1);
    timer.run();
    EXPECT_EQ(store_.content(key), heartbeat_text("node1", mounted));
}

TEST_F(HeartbeatTest, AShortMountCostsNothing) {
    EXPECT_TRUE(stop());
    EXPECT_EQ(store_.calls(), 0);
    EXPECT_EQ(timer_.waiting(), 0U);
}

TEST_F(HeartbeatTest, AfterAFailureItBeatsSoon) {
    testing::Fault fault;
    fault.operation = testing::Operation::kPut;
    fault.error = testing::store_error(EIO, "InternalError", 500);
    fault.times = 2;
    store_.inject(fault);
    timer_.run();
    EXPECT_EQ(timer_.run(), Milliseconds(60'000));
    EXPECT_TRUE(store_.keys().empty());
    random_ = 0;
    EXPECT_EQ(timer_.run(), Milliseconds(60'000));
    EXPECT_TRUE(store_.exists(kKey));
    EXPECT_EQ(timer_.run(), Milliseconds(540'000));
}

TEST_F(HeartbeatTest, WhereItIsRefusedItBeatsNoSooner) {
    testing::Fault fault;
    fault.operation = testing::Operation::kPut;
    fault.error = testing::store_error(EACCES, "AccessDenied", 403);
    store_.inject(fault);
    timer_.run();
    EXPECT_EQ(timer_.run(), Milliseconds(600'000));
    EXPECT_TRUE(store_.exists(kKey));
}

TEST_F(HeartbeatTest, OneInFlightAtTheEndIsRemovedToo) {
    store_.hold(testing::Operation::kPut);
    timer_.run();
    bool gone = false;
    heartbeat_.stop([&gone] { gone = true; });
    EXPECT_FALSE(gone);
    store_.release(testing::Operation::kPut);
    EXPECT_TRUE(gone);
    EXPECT_TRUE(store_.keys().empty());
    EXPECT_EQ(timer_.waiting(), 0U);
}

TEST(HeartbeatText, IsReadAsItIsWritten) {
    const WallTime now = WallTime(std::chrono::seconds(1'700'000'000));
    const SeenMount read = parse_heartbeat(heartbeat_text("node1", now), now + std::chrono::hours(1));
    EXPECT_EQ(read.host, "node1");
    EXPECT_EQ(read.since, now);
    EXPECT_EQ(read.last_seen, now + std::chrono::hours(1));
    // Who tells nothing, or nonsense, may have been there always.
    for (const char* text :
         {"", "host: a\n", "since: \n", "since: x\n", "since: 12x\n", "since: 99999999999\n", "since"}) {
        EXPECT_FALSE(parse_heartbeat(text, now).since) << text;
    }
}

}  // namespace
}  // namespace ckptfs
