// SPDX-License-Identifier: Apache-2.0
// What changes a name after a rename to a commit marker that waits for other files. Its caller was killed: the kernel
// lets others into the directory.
#include <functional>
#include <future>

#include "file_system_fixture.h"
#include "support/sync_store.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

class MarkerOrderTest : public FileSystemTest {
protected:
    void TearDown() override {
        // Of a test that ended early.
        store.release(Operation::kPut);
        store.release(Operation::kCopy);
        store.release(Operation::kListUploads);
    }

    Status save_in(NodeId directory, const std::string& name, const std::string& text) {
        const HandleId handle = create(name, O_WRONLY, directory)->opened.handle;
        EXPECT_TRUE(write(handle, 0, text));
        return close(handle);
    }
    // Until release_sibling().
    void begin_commit() {
        save("m.tmp", "second");
        sibling = create("sibling")->opened.handle;
        ASSERT_TRUE(write(sibling, 0, "sibling"));
        store.hold(Operation::kPut);
        committed = std::async(std::launch::async, [this] { return rename("m.tmp", ".metadata"); });
        ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    }
    void release_sibling() {
        store.release(Operation::kPut);
        EXPECT_TRUE(close(sibling));
    }

    // A file of it has failed.
    NodeId begin_step() {
        const NodeId step = mkdir("step")->node;
        store.inject({Operation::kPut, "p/step/shard", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
        EXPECT_EQ(errno_of(save_in(step, "shard", "shard")), EIO);
        EXPECT_TRUE(save_in(step, "old", "old"));
        EXPECT_TRUE(save_in(step, "m.tmp", "metadata"));
        return step;
    }
    // Until the store lets copies go.
    std::future<Status> begin_rename_of_step() {
        store.hold(Operation::kCopy);
        auto renamed = std::async(std::launch::async, [this] { return rename("step", "done"); });
        EXPECT_TRUE(store.wait_until_held(Operation::kCopy, 1));
        return renamed;
    }

    HandleId sibling = 0;
    std::future<Status> committed;
};

TEST_F(MarkerOrderTest, AMarkerThatIsRemovedMeanwhileDoesNotComeBack) {
    save(".metadata", "first");
    begin_commit();
    auto removed = std::async(std::launch::async, [this] { return unlink(".metadata"); });
    EXPECT_EQ(removed.wait_for(kForAWhile), std::future_status::timeout);
    EXPECT_TRUE(store.exists("p/.metadata"));
    release_sibling();
    EXPECT_TRUE(committed.get());
    EXPECT_TRUE(removed.get());
    EXPECT_EQ(store.keys(), std::vector<std::string>{"p/sibling"});
    EXPECT_EQ(errno_of(lookup(".metadata")), ENOENT);
}

TEST_F(MarkerOrderTest, AMarkerThatIsRenamedAwayMeanwhileIsTheLaterOne) {
    save(".metadata", "first");
    begin_commit();
    auto renamed = std::async(std::launch::async, [this] { return rename(".metadata", "old"); });
    EXPECT_EQ(renamed.wait_for(kForAWhile), std::future_status::timeout);
    release_sibling();
    EXPECT_TRUE(committed.get());
    EXPECT_TRUE(renamed.get());
    EXPECT_EQ(store.keys(), (std::vector<std::string>{"p/old", "p/sibling"}));
    EXPECT_EQ(store.content("p/old"), "second");
}

TEST_F(MarkerOrderTest, WhatIsRemovedAfterARefusalIsTheEarlierOne) {
    save(".metadata", "first");
    store.inject({Operation::kPut, "p/sibling", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    begin_commit();
    auto removed = std::async(std::launch::async, [this] { return unlink(".metadata"); });
    EXPECT_EQ(removed.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kPut);
    EXPECT_EQ(errno_of(committed.get()), EIO);
    EXPECT_TRUE(removed.get());
    EXPECT_FALSE(store.exists("p/.metadata"));
    EXPECT_EQ(store.content("p/m.tmp"), "second");
    EXPECT_TRUE(release(sibling));
}

// Each of the two is a file that the other waits for.
TEST_F(MarkerOrderTest, TwoMarkersThatAreStillOpenDoNotWaitForEachOther) {
    const HandleId one = create("a.tmp")->opened.handle;
    const HandleId two = create("b.tmp")->opened.handle;
    ASSERT_TRUE(write(one, 0, "one"));
    ASSERT_TRUE(write(two, 0, "two"));
    store.hold(Operation::kPut);
    committed = std::async(std::launch::async, [this] { return rename("a.tmp", ".metadata"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    auto other = std::async(std::launch::async, [this] { return rename("b.tmp", ".snapshot_metadata"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 2));
    store.release(Operation::kPut);
    EXPECT_TRUE(committed.get());
    EXPECT_TRUE(other.get());
    EXPECT_TRUE(close(one));
    EXPECT_TRUE(close(two));
    EXPECT_EQ(store.keys(), (std::vector<std::string>{"p/.metadata", "p/.snapshot_metadata"}));
}

// A failed write, whose descriptor a child or a kept exception holds on to.
TEST_F(MarkerOrderTest, AFailureThatWasMadeGoodIsNotNotedAgainByALateClose) {
    const HandleId failed = create("x1.tmp")->opened.handle;
    ASSERT_TRUE(write(failed, 0, "text"));
    store.inject({Operation::kPut, "p/x1.tmp", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    EXPECT_EQ(errno_of(flush(failed)), EIO);
    save("m.tmp", "metadata");
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata")), EIO);
    clock.advance(Milliseconds(1));
    save("x2.tmp", "text");
    EXPECT_TRUE(rename("x2.tmp", "x"));
    EXPECT_EQ(errno_of(flush(failed)), EIO) << "the first failure is kept";
    EXPECT_TRUE(rename("m.tmp", ".metadata"));
    EXPECT_TRUE(release(failed));
}

TEST_F(MarkerOrderTest, ADirectoryIsRenamedWithTheMarkerThatWasToAppearInIt) {
    const NodeId step = mkdir("step")->node;
    ASSERT_TRUE(save_in(step, "m.tmp", "metadata"));
    store.hold(Operation::kListUploads);
    committed = std::async(std::launch::async, [&] { return rename("m.tmp", ".metadata", 0, step); });
    ASSERT_TRUE(store.wait_until_held(Operation::kListUploads, 2));
    auto renamed = std::async(std::launch::async, [this] { return rename("step", "done"); });
    EXPECT_EQ(renamed.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kListUploads);
    EXPECT_TRUE(committed.get());
    EXPECT_TRUE(renamed.get());
    EXPECT_EQ(store.keys(), (std::vector<std::string>{"p/done/", "p/done/.metadata"}));
}

TEST_F(MarkerOrderTest, ADirectoryThatAMarkerIsToAppearInIsNotRemoved) {
    const NodeId step = mkdir("step")->node;
    save("m.tmp", "metadata");
    store.hold(Operation::kListUploads);
    committed = std::async(std::launch::async, [&] {
        return answer<void>([&](auto reply) {
            fs->rename(kRootNode, "m.tmp", step, ".metadata", 0, Caller{kProcess, 0, 0}, reply);
        });
    });
    ASSERT_TRUE(store.wait_until_held(Operation::kListUploads, 2));
    auto removed = std::async(std::launch::async, [this] { return rmdir("step"); });
    EXPECT_EQ(removed.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kListUploads);
    EXPECT_TRUE(committed.get());
    EXPECT_EQ(errno_of(removed.get()), ENOTEMPTY);
    EXPECT_TRUE(store.exists("p/step/.metadata"));
}

TEST_F(MarkerOrderTest, AMarkerThatIsReplacedAsItIsLinkedIsTheLaterOne) {
    const NodeId source = save("link.tmp", "linked");
    save("m.tmp", "renamed");
    store.hold(Operation::kListUploads);
    auto linked = std::async(std::launch::async, [&] {
        return answer<Entry>([&](auto reply) {
            fs->link(source, kRootNode, ".metadata", Caller{kProcess, 0, 0}, reply);
        });
    });
    ASSERT_TRUE(store.wait_until_held(Operation::kListUploads, 2));
    committed = std::async(std::launch::async, [this] { return rename("m.tmp", ".metadata"); });
    static_cast<void>(committed.wait_for(kForAWhile));
    EXPECT_EQ(store.calls(Operation::kListUploads), 2);
    store.release(Operation::kListUploads);
    EXPECT_TRUE(linked.get());
    EXPECT_TRUE(committed.get());
    EXPECT_EQ(store.keys(), (std::vector<std::string>{"p/.metadata", "p/link.tmp"}));
    EXPECT_EQ(store.content("p/.metadata"), "renamed");
}

TEST_F(MarkerOrderTest, AMarkerThatIsToAppearInADirectoryBeingRenamedIsHeldBackByWhatFailedThere) {
    const NodeId step = begin_step();
    std::future<Status> renamed = begin_rename_of_step();
    store.hold(Operation::kListUploads);
    committed = std::async(std::launch::async, [&] { return rename("m.tmp", ".metadata", 0, step); });
    EXPECT_EQ(committed.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kCopy);
    EXPECT_TRUE(renamed.get());
    store.release(Operation::kListUploads);
    EXPECT_EQ(errno_of(committed.get()), EIO);
    EXPECT_FALSE(store.exists("p/done/.metadata"));
    EXPECT_TRUE(store.exists("p/done/m.tmp"));
}

TEST_F(MarkerOrderTest, AMarkerThatIsLinkedInADirectoryBeingRenamedIsHeldBackByWhatFailedThere) {
    const NodeId step = begin_step();
    const NodeId source = lookup("m.tmp", step)->node;
    std::future<Status> renamed = begin_rename_of_step();
    store.hold(Operation::kListUploads);
    auto linked = std::async(std::launch::async, [&] {
        return answer<Entry>([&](auto reply) { fs->link(source, step, ".metadata", Caller{kProcess, 0, 0}, reply); });
    });
    EXPECT_EQ(linked.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kCopy);
    EXPECT_TRUE(renamed.get());
    store.release(Operation::kListUploads);
    EXPECT_EQ(errno_of(linked.get()), EIO);
    EXPECT_FALSE(store.exists("p/done/.metadata"));
}

TEST_F(MarkerOrderTest, WhatFailedAndIsRemovedWhileItsDirectoryIsRenamedHoldsNoMarkerBack) {
    const NodeId step = begin_step();
    std::future<Status> renamed = begin_rename_of_step();
    auto removed = std::async(std::launch::async, [&] { return unlink("shard", step); });
    EXPECT_EQ(removed.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kCopy);
    EXPECT_TRUE(renamed.get());
    EXPECT_TRUE(removed.get());
    EXPECT_TRUE(rename("m.tmp", ".metadata", 0, lookup("done")->node));
}

TEST_F(MarkerOrderTest, AMarkerThatIsRemovedAfterItsDirectoryWasRenamedDoesNotComeBack) {
    const NodeId step = mkdir("step")->node;
    ASSERT_TRUE(save_in(step, "m.tmp", "metadata"));
    std::future<Status> renamed = begin_rename_of_step();
    committed = std::async(std::launch::async, [&] { return rename("m.tmp", ".metadata", 0, step); });
    EXPECT_EQ(committed.wait_for(kForAWhile), std::future_status::timeout);
    store.hold(Operation::kListUploads);
    store.release(Operation::kCopy);
    EXPECT_TRUE(renamed.get());
    ASSERT_TRUE(store.wait_until_held(Operation::kListUploads, 2));
    auto removed = std::async(std::launch::async, [&] { return unlink(".metadata", step); });
    EXPECT_EQ(removed.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kListUploads);
    EXPECT_TRUE(committed.get());
    EXPECT_TRUE(removed.get());
    EXPECT_EQ(store.keys(), std::vector<std::string>{"p/done/"});
}

// Each waits on a thread that the gate would need, as many as there are.
TEST_F(MarkerOrderTest, RemovalsOfMarkersThatAreAskedForAgainDoNotWaitForEachOther) {
    constexpr int kThreads = 4;
    std::vector<NodeId> steps;
    std::vector<HandleId> markers;
    for (int each = 0; each < kThreads; ++each) {
        steps.push_back(mkdir("step" + std::to_string(each))->node);
        markers.push_back(create(".metadata", O_WRONLY, steps.back())->opened.handle);
        ASSERT_TRUE(write(markers.back(), 0, "metadata"));
    }
    std::vector<std::future<Status>> ended;
    store.hold(Operation::kPut);
    for (const HandleId marker : markers) {
        ended.push_back(std::async(std::launch::async, [this, marker] { return close(marker); }));
    }
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, kThreads));
    store.hold(Operation::kHead);
    for (const NodeId step : steps) {
        ended.push_back(std::async(std::launch::async, [this, step] { return unlink(".metadata", step); }));
    }
    EXPECT_TRUE(store.wait_until_held(Operation::kHead, kThreads));
    clock.advance(std::chrono::minutes(2));
    store.release(Operation::kPut);
    store.release(Operation::kHead);
    for (std::future<Status>& each : ended) {
        EXPECT_TRUE(each.get());
    }
    for (int each = 0; each < kThreads; ++each) {
        EXPECT_FALSE(store.exists("p/step" + std::to_string(each) + "/.metadata"));
    }
}

// What publishes a marker is sent, or sent again, long after the gate has allowed it.
class LateMarkerTest : public MarkerOrderTest, public ::testing::WithParamInterface<bool> {
protected:
    void TearDown() override {
        store.release(Operation::kCopy);
        store.release(Operation::kCompleteUpload);
        MarkerOrderTest::TearDown();
    }
    // Other mounts may have begun to save the checkpoint again.
    void hold_up(bool has_failed_elsewhere, Milliseconds time = std::chrono::minutes(4)) {
        if (has_failed_elsewhere) {
            store.put_object(kRecord, "host: node7\nreason: no room\netag-before: \n");
        }
        GetParam() ? clock.advance_wall(time) : clock.advance(time);
    }
    // `publish` is to send this operation at last.
    void expect_refused_or_published(Operation operation, const std::function<Status()>& publish) {
        for (const bool is_refused : {true, false}) {
            SCOPED_TRACE(is_refused);
            store.hold(operation);
            committed = std::async(std::launch::async, publish);
            ASSERT_TRUE(store.wait_until_held(operation, 1));
            hold_up(is_refused);
            store.release(operation);
            const Status done = committed.get();
            EXPECT_EQ(errno_of(done), is_refused ? EIO : 0);
            EXPECT_TRUE(done || done.error().message.find("shard could not be written on node7") != std::string::npos);
            EXPECT_EQ(store.exists("p/.metadata"), !is_refused);
            if (is_refused) {
                ASSERT_TRUE(SyncStore(store).remove(kRecord));
            }
        }
    }
    // `publish` sends this operation, which the store answers late, twice; it is as late with what the gate asks
    // between.
    Status publish_late(Operation operation, Milliseconds late, const std::function<Status()>& publish) {
        store.hold(operation);
        committed = std::async(std::launch::async, publish);
        EXPECT_TRUE(store.wait_until_held(operation, 1));
        hold_up(false, late);
        store.hold(Operation::kListUploads);
        store.release(operation);
        EXPECT_TRUE(store.wait_until_held(Operation::kListUploads, 2));
        hold_up(false, late);
        store.hold(operation);
        store.release(Operation::kListUploads);
        EXPECT_TRUE(store.wait_until_held(operation, 1));
        hold_up(false, late);
        store.release(operation);
        return committed.get();
    }
    void expect_done_although_asking_took_long(const std::function<Status()>& change) {
        store.hold(Operation::kListUploads);
        committed = std::async(std::launch::async, change);
        ASSERT_TRUE(store.wait_until_held(Operation::kListUploads, 2));
        hold_up(false);
        store.release(Operation::kListUploads);
        EXPECT_EQ(errno_of(committed.get()), 0);
    }
    Status save_marker() {
        const HandleId marker = create(".metadata")->opened.handle;
        EXPECT_TRUE(write(marker, 0, "metadata"));
        return close(marker);
    }
    static void expect_told_as_late(const Status& late) {
        EXPECT_EQ(errno_of(late), EIO);
        EXPECT_TRUE(late || late.error().message.find(".metadata is not committed: the store did not take it") !=
                                std::string::npos)
            << late.error().message;
    }
    static constexpr const char* kRecord = "p/.ckptfs/failed/shard";
};

INSTANTIATE_TEST_SUITE_P(, LateMarkerTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Hibernated" : "Awake"; });

TEST_P(LateMarkerTest, IsRenamedOnceTheGateHasAllowedItAgain) {
    save("m.tmp", "metadata");
    expect_refused_or_published(Operation::kCopy, [this] { return rename("m.tmp", ".metadata"); });
}

TEST_P(LateMarkerTest, IsLinkedOnceTheGateHasAllowedItAgain) {
    const NodeId source = save("m.tmp", "metadata");
    expect_refused_or_published(Operation::kCopy, [&] {
        const auto linked = answer<Entry>([&](auto reply) {
            fs->link(source, kRootNode, ".metadata", Caller{kProcess, 0, 0}, reply);
        });
        return linked ? Status() : failure(linked.error());
    });
}

TEST_P(LateMarkerTest, IsASymbolicLinkOnceTheGateHasAllowedItAgain) {
    expect_refused_or_published(Operation::kPut, [&] {
        const auto linked = answer<Entry>([&](auto reply) {
            fs->symlink(kRootNode, ".metadata", "metadata", Caller{kProcess, 0, 0}, reply);
        });
        return linked ? Status() : failure(linked.error());
    });
}

TEST_P(LateMarkerTest, IsSavedInPlaceOnceTheGateHasAllowedItAgain) {
    for (const bool is_synced : {false, true}) {
        expect_refused_or_published(Operation::kPut, [&] {
            const HandleId marker = create(".metadata")->opened.handle;
            EXPECT_TRUE(write(marker, 0, "metadata"));
            const Status synced = is_synced ? fsync(marker) : Status();
            const Status closed = close(marker);
            return synced ? closed : synced;
        });
        ASSERT_TRUE(unlink(".metadata"));
    }
}

TEST_P(LateMarkerTest, OfManyPartsIsSavedInPlaceOnceTheGateHasAllowedItAgain) {
    expect_refused_or_published(Operation::kCompleteUpload, [&] {
        const HandleId marker = create(".metadata")->opened.handle;
        const std::string piece(std::size_t{1} << 20, 'x');
        for (std::uint64_t at = 0; at < 12; ++at) {
            EXPECT_TRUE(write(marker, at * piece.size(), piece));
        }
        return close(marker);
    });
    EXPECT_EQ(store.open_uploads(), 0);
}

// Beyond that only where it was the machine that stood still.
TEST_P(LateMarkerTest, IsAskedForAgainForAsLongAsARequestIsTried) {
    for (const bool is_in_time : {true, false}) {
        const Milliseconds late = std::chrono::seconds(is_in_time ? 90 : 240);
        const auto expect_as_it_should_be = [&](const Status& done) {
            const bool is_published = is_in_time || GetParam();
            if (is_published) {
                EXPECT_EQ(errno_of(done), 0);
            } else {
                expect_told_as_late(done);
            }
            EXPECT_EQ(store.exists("p/.metadata"), is_published);
            static_cast<void>(unlink(".metadata"));
        };
        expect_as_it_should_be(publish_late(Operation::kPut, late, [this] { return save_marker(); }));
        save("m.tmp", "metadata");
        expect_as_it_should_be(publish_late(Operation::kCopy, late, [this] { return rename("m.tmp", ".metadata"); }));
    }
}

TEST_P(LateMarkerTest, IsPublishedByARenameAlthoughTheGateIsAnsweredLate) {
    for (const unsigned flags : {0U, unsigned{RENAME_NOREPLACE}}) {
        const HandleId file = create(flags == 0 ? "m.tmp" : ".metadata")->opened.handle;
        ASSERT_TRUE(write(file, 0, "metadata"));
        expect_done_although_asking_took_long(
            [&] { return flags == 0 ? rename("m.tmp", ".metadata") : rename(".metadata", "old", flags); });
        EXPECT_TRUE(close(file));
        EXPECT_TRUE(unlink(flags == 0 ? ".metadata" : "old"));
    }
    const NodeId step = mkdir("step")->node;
    const HandleId marker = create(".metadata", O_WRONLY, step)->opened.handle;
    ASSERT_TRUE(write(marker, 0, "metadata"));
    expect_done_although_asking_took_long([this] { return rename("step", "done"); });
    EXPECT_TRUE(close(marker));
    EXPECT_TRUE(store.exists("p/done/.metadata"));
}

// Of an open file that has nothing in the bucket, the rename itself is what saves it.
TEST_P(LateMarkerTest, IsNotPublishedByTheRenameOfAnOpenFile) {
    const HandleId marker = create("m.tmp")->opened.handle;
    ASSERT_TRUE(write(marker, 0, "metadata"));
    store.hold(Operation::kPut);
    committed = std::async(std::launch::async, [this] { return rename("m.tmp", ".metadata"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    hold_up(false);
    store.release(Operation::kPut);
    expect_told_as_late(committed.get());
    EXPECT_FALSE(store.exists("p/.metadata"));
    EXPECT_EQ(errno_of(close(marker)), EIO);
}

}  // namespace
}  // namespace ckptfs::fs
