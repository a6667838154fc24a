// SPDX-License-Identifier: Apache-2.0
// For how long the records of files that failed on other mounts count, and stay.
#include <chrono>

#include "file_system_fixture.h"
#include "fs/failed_siblings.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

using std::chrono::hours;
using std::chrono::minutes;

constexpr const char* kRecord = "p/.ckptfs/failed/step/shard";
constexpr const char* kMoved = "p/.ckptfs/failed/done/shard";

class FailureRecordsTest : public FileSystemTest {
protected:
    FailureRecordsTest() {
        turn_store_to(-hours(48));
        step = mkdir("step")->node;
    }
    // By the clock of the mounts.
    void turn_store_to(Milliseconds time) {
        const auto now = std::chrono::system_clock::now() + offset;
        const auto by = std::chrono::floor<Milliseconds>(clock.wall_now() + time - now);
        store.advance_clock(by);
        offset += by;
    }
    void fail_elsewhere(Milliseconds age,
                        const std::string& content = "host: node7\nreason: no room\netag-before: \n") {
        turn_store_to(-age);
        store.put_object(kRecord, content);
        turn_store_to(Milliseconds(0));
    }
    // On mounts with this --failed-sibling-ttl.
    int commit(Milliseconds ttl, NodeId directory) {
        write_environment.config.failed_sibling_ttl = ttl;
        const HandleId marker = create("m.tmp", O_WRONLY, directory)->opened.handle;
        EXPECT_TRUE(write(marker, 0, "metadata") && close(marker));
        return errno_of(rename("m.tmp", ".metadata", 0, directory));
    }

    Milliseconds offset{0};
    NodeId step = 0;
};

TEST_F(FailureRecordsTest, WhatHasExpiredHereCountsWhereItHasNot) {
    fail_elsewhere(minutes(2));
    EXPECT_EQ(commit(minutes(1), step), 0);
    EXPECT_TRUE(store.exists(kRecord));
    EXPECT_EQ(commit(hours(1), step), EIO);
}

TEST_F(FailureRecordsTest, WhatIsOlderThanADayIsRemoved) {
    fail_elsewhere(hours(25));
    EXPECT_EQ(commit(hours(48), step), EIO);
    EXPECT_TRUE(store.exists(kRecord));
    EXPECT_EQ(commit(minutes(1), step), 0);
    EXPECT_TRUE(eventually([&] { return !store.exists(kRecord); }));
}

TEST_F(FailureRecordsTest, WhatWasMadeGoodIsRemoved) {
    fail_elsewhere(minutes(2));
    store.put_object("p/step/shard", "what another mount has saved since");
    EXPECT_EQ(commit(hours(1), step), 0);
    EXPECT_TRUE(eventually([&] { return !store.exists(kRecord); }));
}

TEST_F(FailureRecordsTest, WhatHasExpiredHereMovesWithItsDirectory) {
    fail_elsewhere(minutes(2));
    write_environment.config.failed_sibling_ttl = minutes(1);
    ASSERT_TRUE(rename("step", "done"));
    EXPECT_TRUE(eventually([&] { return store.exists(kMoved) && !store.exists(kRecord); }));
    const NodeId done = lookup("done")->node;
    EXPECT_EQ(commit(minutes(1), done), 0) << "the rename makes it no younger";
    EXPECT_EQ(commit(hours(1), done), EIO);
    switch_mounts();
    const NodeId there = lookup("done")->node;
    EXPECT_EQ(commit(minutes(1), there), 0);
    EXPECT_TRUE(store.exists(kMoved));
    EXPECT_EQ(commit(hours(1), there), EIO);
}

// The mount that renamed it has its own record to remove, but this is not its own.
TEST_F(FailureRecordsTest, WhatMovedWithItsDirectoryStaysAfterTheTimeOfWhoRenamedIt) {
    fail_elsewhere(minutes(2));
    ASSERT_TRUE(rename("step", "between") && rename("between", "done"));
    EXPECT_TRUE(eventually([&] { return store.exists(kMoved); }));
    clock.advance(WriteConfig().failed_sibling_ttl + Milliseconds(1));
    timer.run(FailedSiblings::kTick);
    EXPECT_EQ(fs->unwritten(1).count, 0U);
    EXPECT_TRUE(store.exists(kMoved));
    EXPECT_EQ(commit(hours(1), lookup("done")->node), EIO);
}

}  // namespace
}  // namespace ckptfs::fs
