// SPDX-License-Identifier: Apache-2.0
#include "fs/moves/rename_record.h"

#include <gtest/gtest.h>

#include <atomic>

#include "file_system_fixture.h"
#include "support/eventually.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

// It is looked at before each heartbeat, of which there are ten in this time.
constexpr Milliseconds kBeatsFor{200};

class CountingClock final : public Clock {
public:
    [[nodiscard]] SteadyTime now() const override {
        const SteadyTime time = clock_.now();
        ++looks_;
        return time;
    }
    [[nodiscard]] WallTime wall_now() const override { return clock_.wall_now(); }
    void advance(Milliseconds by) { clock_.advance(by); }
    [[nodiscard]] int looks() const { return looks_; }

private:
    StandingClock clock_;
    mutable std::atomic<int> looks_ = 0;
};

class RenameRecordTest : public ::testing::Test {
protected:
    RenameRecordTest() {
        DirectoryMarker rename;
        rename.rename_id = "rename";
        rename.source = "p/old/";
        rename.destination = "p/new/";
        EXPECT_TRUE(record.create(rename));
    }

    FakeStore store;
    CountingClock clock;
    RenameRecord record{store, clock, kBeatsFor};
};

TEST_F(RenameRecordTest, IsHeldWhileItShowsSignsOfLife) {
    for (int step = 0; step < 4; ++step) {
        clock.advance(kBeatsFor / 3);
        const int before = store.calls(Operation::kPut);
        EXPECT_TRUE(eventually([&] { return store.calls(Operation::kPut) > before + 1; }));
        EXPECT_FALSE(record.lost());
    }
    EXPECT_TRUE(record.change_state(MarkerState::kCommitted));
}

// As when its process was stopped: on a store without conditional writes nothing else tells that others have ended it.
TEST_F(RenameRecordTest, IsNotHeldAgainByASignOfLifeThatComesTooLate) {
    // A heartbeat is under way while time passes, so that the next one comes too late.
    store.hold(Operation::kPut);
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    const int written = store.calls(Operation::kPut);
    clock.advance(kBeatsFor / 2 + Milliseconds(1));
    const int before = clock.looks();
    store.release(Operation::kPut);
    EXPECT_TRUE(eventually([&] { return clock.looks() > before; }));
    const Status decided = record.change_state(MarkerState::kCommitted);
    ASSERT_FALSE(decided);
    EXPECT_EQ(decided.error().errno_value, EIO);
    EXPECT_TRUE(record.lost());
    EXPECT_EQ(store.calls(Operation::kPut), written);
}

}  // namespace
}  // namespace ckptfs::fs
