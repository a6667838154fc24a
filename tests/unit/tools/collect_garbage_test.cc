// SPDX-License-Identifier: Apache-2.0
#include "tools/collect_garbage.h"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/system_clock.h"
#include "base/uuid.h"
#include "daemon/heartbeat.h"
#include "fs/objects/directory_marker.h"
#include "support/fake_store.h"
#include "support/sync_store.h"

namespace ckptfs {
namespace {

using std::chrono::hours;
using testing::Operation;

// The store's.
class LaterClock final : public Clock {
public:
    [[nodiscard]] SteadyTime now() const override { return clock_.now() + later; }
    [[nodiscard]] WallTime wall_now() const override { return clock_.wall_now() + later; }

    Milliseconds later{0};

private:
    SystemClock clock_;
};

class CollectGarbage : public ::testing::Test {
protected:
    void begin(const std::string& key) {
        SyncStore store(store_);
        CreateUploadRequest request;
        request.key = key;
        const UploadId upload = store.create_upload(std::move(request)).value();
        UploadPartRequest part;
        part.upload = upload;
        part.part_number = 1;
        part.body = Payload::from_string(std::string(100, 'x'));
        part.crc32c = crc32c(as_bytes(std::string(100, 'x')));
        ASSERT_TRUE(store.upload_part(std::move(part)));
    }
    void pass(Milliseconds time) {
        store_.advance_clock(time);
        clock_.later += time;
    }
    GarbageTotals collect(bool end, const std::string& prefix = "") {
        found_.clear();
        const auto totals = collect_garbage(store_, clock_, {prefix, hours(24), end, forget_disks_},
                                            [this](const FoundLeftover& each) { found_[each.upload.key] = each; });
        EXPECT_TRUE(totals);
        return totals.value_or(GarbageTotals{});
    }

    testing::FakeStore store_;
    LaterClock clock_;
    std::map<std::string, FoundLeftover> found_;
    bool forget_disks_ = false;
};

TEST_F(CollectGarbage, TellsAndEndsWhatIsAbandonedBelowThePrefix) {
    begin("run/a");
    begin("other/b");
    pass(hours(25));
    begin("run/young");
    GarbageTotals totals = collect(false, "run/");
    EXPECT_EQ(totals.uploads, 2U);
    EXPECT_EQ(totals.size, 200U);
    EXPECT_EQ(totals.abandoned, 1U);
    EXPECT_EQ(totals.abandoned_size, 100U);
    EXPECT_EQ(totals.ended, 0U);
    EXPECT_EQ(store_.open_uploads(), 3);
    totals = collect(true, "run/");
    EXPECT_EQ(totals.ended, 1U);
    EXPECT_TRUE(found_["run/a"].ended);
    EXPECT_FALSE(found_["run/young"].ended);
    EXPECT_EQ(store_.open_uploads(), 2);
    EXPECT_EQ(exit_code(totals), 0);
}

TEST_F(CollectGarbage, LeavesWhatMayBeThatOfAMountAtItsDirectoryOrAbove) {
    begin("run/step/a");
    begin("other/b");
    pass(hours(25));
    store_.put_object("run/.ckptfs/mounts/1", heartbeat_text("node1", clock_.wall_now() - hours(30)));
    EXPECT_EQ(collect(true).ended, 1U);
    EXPECT_EQ(found_["run/step/a"].state, Leftover::kPerhapsInUse);
    EXPECT_TRUE(found_["other/b"].ended);
    // One that was mounted later has nothing to do with it.
    store_.put_object("run/.ckptfs/mounts/1", heartbeat_text("node1", clock_.wall_now() - hours(1)));
    EXPECT_EQ(collect(true).ended, 1U);
    EXPECT_EQ(store_.open_uploads(), 0);
}

TEST_F(CollectGarbage, RemovesHiddenFilesThatNobodyNames) {
    store_.put_object("run/.ckptfs/tmp/1", std::string(100, 'x'));
    store_.put_object("run/model", "x");
    pass(hours(25));
    store_.put_object("run/.ckptfs/tmp/2", "young");
    GarbageTotals totals = collect(false, "run/");
    EXPECT_EQ(totals.uploads, 0U);
    EXPECT_EQ(totals.files, 2U);
    EXPECT_EQ(totals.abandoned_size, 100U);
    EXPECT_EQ(describe(found_["run/.ckptfs/tmp/1"]),
              "run/.ckptfs/tmp/1: hidden file, 0.0 MiB, begun 25 h ago, abandoned");
    EXPECT_EQ(store_.keys().size(), 3U);
    // Its mount may have had it open all the time.
    store_.put_object("run/.ckptfs/mounts/1", heartbeat_text("node1", clock_.wall_now() - hours(30)));
    EXPECT_EQ(collect(true, "run/").ended, 0U);
    store_.put_object("run/.ckptfs/mounts/1", heartbeat_text("node1", clock_.wall_now() - hours(1)));
    totals = collect(true, "run/");
    EXPECT_EQ(totals.ended, 1U);
    EXPECT_TRUE(found_["run/.ckptfs/tmp/1"].ended);
    EXPECT_EQ(store_.keys(), (std::vector<std::string>{"run/.ckptfs/mounts/1", "run/.ckptfs/tmp/2", "run/model"}));
}

// The change that the disk has may be a copy of the hidden file, which it has sent already.
TEST_F(CollectGarbage, KeepsWhatADiskThatIsAwayMayNeed) {
    store_.put_object("run/.ckptfs/tmp/1", std::string(100, 'x'));
    store_.put_object("run/.ckptfs/unsent/step/disk-1-1", "node1");
    pass(hours(25));
    EXPECT_EQ(collect(true, "run/").ended, 0U);
    EXPECT_EQ(describe(found_["run/.ckptfs/tmp/1"]),
              "run/.ckptfs/tmp/1: hidden file, 0.0 MiB, begun 25 h ago, needed by a disk: mount its --cache-dir "
              "again, or give --forget-disks if it is lost");
    EXPECT_EQ(found_["run/.ckptfs/unsent/step/disk-1-1"].state, Leftover::kNeededByDisk);
    EXPECT_EQ(store_.keys().size(), 2U);
    // Another one is back, and may need it.
    store_.put_object("run/.ckptfs/unsent/step/another-1-1", "node2");
    forget_disks_ = true;
    EXPECT_EQ(collect(true, "run/").ended, 1U);
    EXPECT_EQ(found_["run/.ckptfs/tmp/1"].state, Leftover::kNeededByDisk);
    pass(hours(25));
    EXPECT_EQ(collect(true, "run/").ended, 2U);
    EXPECT_TRUE(store_.keys().empty());
}

TEST_F(CollectGarbage, RemovesRecordsOfFailuresOnceNoMountLives) {
    store_.put_object("run/.ckptfs/failed/step/model", "host: a\n");
    pass(hours(25));
    store_.put_object("run/.ckptfs/failed/step/young", "host: a\n");
    // One that was mounted later heeds it, too.
    store_.put_object("run/.ckptfs/mounts/1", heartbeat_text("node1", clock_.wall_now() - hours(1)));
    GarbageTotals totals = collect(true, "run/");
    EXPECT_EQ(totals.records, 2U);
    EXPECT_EQ(totals.ended, 0U);
    EXPECT_EQ(found_["run/.ckptfs/failed/step/model"].state, Leftover::kPerhapsInUse);
    EXPECT_EQ(found_["run/.ckptfs/failed/step/young"].state, Leftover::kYoung);
    pass(hours(1));
    totals = collect(true, "run/");
    EXPECT_EQ(totals.ended, 1U);
    EXPECT_EQ(describe(found_["run/.ckptfs/failed/step/model"]),
              "run/.ckptfs/failed/step/model: record of a failed file, 0.0 MiB, begun 26 h ago, removed");
    EXPECT_EQ(describe(totals),
              "0 uploads open and 2 records, 0.0 MiB, about $0.00 a month; 1 abandoned, 0.0 MiB, 1 ended");
    EXPECT_EQ(store_.keys().size(), 2U);
}

class CollectRenames : public CollectGarbage {
protected:
    [[nodiscard]] fs::DirectoryMarker rename(fs::MarkerState state) const {
        return {state, false, false, "run/", "run/old/", "run/new/", id_, id_, clock_.wall_now()};
    }
    void put(const std::string& key, fs::MarkerState state) {
        store_.put_object(key, fs::encode_marker(rename(state)));
    }
    void put_record(fs::MarkerState state) {
        record_ = fs::record_key(rename(state));
        names_ = fs::names_key(rename(state));
        put(record_, state);
        store_.put_object(names_, fs::encode_names({{"model", ""}}));
    }

    const std::string id_ = random_uuid();
    std::string record_;
    std::string names_;
};

TEST_F(CollectRenames, WhatNoDirectoryIsHiddenByIsRemoved) {
    put_record(fs::MarkerState::kCommitted);
    store_.put_object("run/new/", "");
    store_.put_object("run/new/model", "x");
    store_.put_object("run/.ckptfs/renames/of a stranger", "x");
    EXPECT_EQ(collect(true, "run/").ended, 0U);
    EXPECT_EQ(found_[record_].state, Leftover::kYoung);
    pass(hours(25));
    // Its mount may work at it with a long --rename-repair-after.
    store_.put_object("run/.ckptfs/mounts/1", heartbeat_text("node1", clock_.wall_now() - hours(30)));
    EXPECT_EQ(collect(true, "run/").ended, 0U);
    EXPECT_EQ(found_[record_].state, Leftover::kPerhapsInUse);
    // A mount that came later would have written the record anew.
    store_.put_object("run/.ckptfs/mounts/1", heartbeat_text("node1", clock_.wall_now() - hours(1)));
    const GarbageTotals totals = collect(true, "run/");
    EXPECT_EQ(totals.records, 2U);
    EXPECT_EQ(totals.ended, 2U);
    EXPECT_EQ(store_.keys(), (std::vector<std::string>{"run/.ckptfs/mounts/1", "run/.ckptfs/renames/of a stranger",
                                                       "run/new/", "run/new/model"}));
}

TEST_F(CollectRenames, WhatAMountHasToEndStays) {
    for (const auto& [directory, state] :
         {std::pair("run/old/", fs::MarkerState::kMoved), std::pair("run/new/", fs::MarkerState::kPending)}) {
        put_record(state == fs::MarkerState::kMoved ? fs::MarkerState::kCommitted : fs::MarkerState::kCopying);
        put(directory, state);
        pass(hours(25));
        const GarbageTotals totals = collect(true, "run/");
        EXPECT_EQ(totals.abandoned, 0U);
        EXPECT_EQ(found_[record_].state, Leftover::kUnfinished);
        EXPECT_EQ(found_[names_].state, Leftover::kUnfinished);
        EXPECT_NE(describe(found_[record_]).find("unfinished: a mount of the prefix ends it"), std::string::npos);
        store_.put_object(directory, "");
    }
}

TEST_F(CollectRenames, NamesStayForAMarkerWithoutARecord) {
    put_record(fs::MarkerState::kCopying);
    put("run/new/", fs::MarkerState::kPending);
    ASSERT_TRUE(SyncStore(store_).remove(record_));
    pass(hours(25));
    EXPECT_EQ(collect(true, "run/").ended, 0U);
    EXPECT_EQ(found_[names_].state, Leftover::kUnfinished);
    // A marker at another place than it says hides nothing.
    store_.put_object("run/new/", "");
    put("run/elsewhere/", fs::MarkerState::kPending);
    EXPECT_EQ(collect(true, "run/").ended, 1U);
}

TEST_F(CollectRenames, AStoreThatDoesNotShowTheMarkersIsAnError) {
    put_record(fs::MarkerState::kCopying);
    put("run/new/", fs::MarkerState::kPending);
    pass(hours(25));
    Error refused;
    refused.errno_value = EACCES;
    store_.inject({Operation::kGet, "run/new/", refused});
    EXPECT_FALSE(collect_garbage(store_, clock_, {"run/", hours(24), true}, [](const FoundLeftover&) {}));
    EXPECT_EQ(store_.keys().size(), 3U);
}

TEST_F(CollectGarbage, RemovesTheSignsOfMountsThatAreLongGone) {
    store_.put_object("run/.ckptfs/mounts/old", "host: a\n");
    pass(hours(25));
    store_.put_object("run/.ckptfs/mounts/new", "host: b\n");
    EXPECT_EQ(collect(false, "run/").dead_mounts, 1U);
    EXPECT_EQ(store_.keys().size(), 2U);
    collect(true, "run/");
    EXPECT_EQ(store_.keys(), std::vector<std::string>{"run/.ckptfs/mounts/new"});
}

// As one of a machine that slept.
TEST_F(CollectGarbage, AMountThatBeatsAgainMeanwhileStays) {
    store_.put_object("run/.ckptfs/mounts/old", "host: a\n");
    begin("run/a");
    pass(hours(25));
    store_.hold(testing::Operation::kListParts);
    auto totals = std::async(std::launch::async, [&] { return collect(true, "run/"); });
    ASSERT_TRUE(store_.wait_until_held(testing::Operation::kListParts, 1));
    store_.put_object("run/.ckptfs/mounts/old", "host: a\n");
    store_.release(testing::Operation::kListParts);
    EXPECT_EQ(totals.get().problems, 0U);
    EXPECT_TRUE(store_.exists("run/.ckptfs/mounts/old"));
}

TEST_F(CollectGarbage, ARecordIsRemovedAlsoWhereOnlyListsTellFractions) {
    store_.describe_to_the_second();
    store_.advance_clock(Milliseconds(123));
    store_.put_object("run/.ckptfs/failed/shard", "host: node7\n");
    pass(hours(25));
    EXPECT_EQ(collect(true, "run/").problems, 0U);
    EXPECT_FALSE(store_.exists("run/.ckptfs/failed/shard"));
}

TEST_F(CollectGarbage, ARecordThatIsWrittenAnewMeanwhileStays) {
    const std::string key = "run/.ckptfs/failed/shard";
    store_.put_object(key, "host: node7\n");
    begin("run/a");
    pass(hours(25));
    store_.hold(testing::Operation::kListParts);
    auto totals = std::async(std::launch::async, [&] { return collect(true, "run/"); });
    ASSERT_TRUE(store_.wait_until_held(testing::Operation::kListParts, 1));
    store_.put_object(key, "host: node7\n");
    store_.release(testing::Operation::kListParts);
    EXPECT_EQ(totals.get().problems, 1U);
    EXPECT_TRUE(store_.exists(key));
    EXPECT_NE(describe(found_[key]).find("written again meanwhile"), std::string::npos) << describe(found_[key]);
}

TEST_F(CollectGarbage, WhatCannotBeEndedIsAProblem) {
    begin("a");
    pass(hours(25));
    Error refused;
    refused.errno_value = EACCES;
    refused.message = "AccessDenied";
    store_.inject({Operation::kAbortUpload, "", refused});
    const GarbageTotals totals = collect(true);
    EXPECT_EQ(totals.problems, 1U);
    EXPECT_EQ(exit_code(totals), 1);
    EXPECT_EQ(describe(found_["a"]), "a: 0.0 MiB, begun 25 h ago, abandoned: AccessDenied");
}

TEST_F(CollectGarbage, AStoreThatDoesNotTellWhoLivesIsAnError) {
    begin("a");
    pass(hours(25));
    Error refused;
    refused.errno_value = EACCES;
    store_.inject({Operation::kList, "", refused});
    EXPECT_FALSE(collect_garbage(store_, clock_, {"", hours(24), true}, [](const FoundLeftover&) {}));
    EXPECT_EQ(store_.open_uploads(), 1);
}

}  // namespace
}  // namespace ckptfs
