// SPDX-License-Identifier: Apache-2.0
// Removals in batches, as the kernel and the store see them.
#include "fs/names/unlink_batches.h"

#include <algorithm>
#include <map>

#include "unlink_batches_fixture.h"

namespace ckptfs::fs {

namespace {

TEST_F(UnlinkBatchesTest, AfterSixteenTheyGoTogether) {
    store.reset_calls();
    remove_all(0, 16);
    EXPECT_EQ(requests(Operation::kRemove), 16);
    const int lookups = requests(Operation::kHead);
    store.hold(Operation::kRemoveMany);
    remove_all(16, 100);
    store.release(Operation::kRemoveMany);
    EXPECT_TRUE(rmdir("dir"));
    EXPECT_TRUE(store.keys().empty());
    EXPECT_EQ(requests(Operation::kRemove), 17) << "and the directory";
    EXPECT_LE(requests(Operation::kRemoveMany), 3);
    EXPECT_LE(requests(Operation::kHead), lookups + 1) << "what was listed is believed";
}

TEST_F(UnlinkBatchesTest, WhoeverLooksWaitsForTheBatch) {
    remove_all(0, 17);
    EXPECT_EQ(errno_of(lookup(file(16), directory)), ENOENT);
    EXPECT_FALSE(store.exists("p/dir/" + file(16)));
    remove_all(17, 20);
    const Names names = list(directory);
    EXPECT_EQ(names.size(), 82U);
    EXPECT_FALSE(store.exists("p/dir/" + file(19)));
    remove_all(20, 25);
    store.hold(Operation::kRemoveMany);
    remove_all(25, 27);
    ASSERT_TRUE(store.wait_until_held(Operation::kRemoveMany, 1)) << "it goes by itself";
    store.release(Operation::kRemoveMany);
}

TEST_F(UnlinkBatchesTest, OnlyItsNamesWaitForIt) {
    store.hold(Operation::kRemoveMany);
    remove_all(0, 20);
    ASSERT_TRUE(store.wait_until_held(Operation::kRemoveMany, 1));
    const Result<CreatedFile> other = create("other", O_WRONLY, directory);
    ASSERT_TRUE(write(other->opened.handle, 0, "new"));
    EXPECT_TRUE(close(other->opened.handle));
    EXPECT_EQ(store.content("p/dir/other"), "new");
    const Result<CreatedFile> made = create(file(19), O_WRONLY, directory);
    ASSERT_TRUE(write(made->opened.handle, 0, "new"));
    std::promise<Status> closed;
    fs->flush(made->opened.handle, Caller{kProcess, 0, 0}, [&](Status status) { closed.set_value(status); });
    EXPECT_EQ(store.content("p/dir/" + file(19)), "x");
    store.release(Operation::kRemoveMany);
    EXPECT_TRUE(closed.get_future().get());
    EXPECT_EQ(store.content("p/dir/" + file(19)), "new");
    ASSERT_TRUE(release(made->opened.handle));
}

// Their caller was killed: the kernel lets others into the directory.
TEST_F(UnlinkBatchesTest, WhatWaitsForAFullBatchComesBeforeALaterRename) {
    constexpr int kFull = 1017;
    for (int i = 100; i <= kFull; ++i) {
        store.put_object("p/dir/" + file(i), "x");
    }
    const Result<CreatedFile> made = create("new", O_WRONLY, directory);
    ASSERT_TRUE(write(made->opened.handle, 0, "new") && close(made->opened.handle));
    store.hold(Operation::kRemoveMany);
    remove_all(0, 17);
    ASSERT_TRUE(store.wait_until_held(Operation::kRemoveMany, 1));
    remove_all(17, kFull);
    // Here, so that they take their places in this order.
    ASSERT_TRUE(lookup(file(kFull), directory));
    std::promise<Status> removed;
    fs->unlink(directory, file(kFull), [&](Status status) { removed.set_value(status); });
    std::promise<Status> renamed;
    fs->rename(directory, "new", directory, file(kFull), 0, Caller{kProcess, 0, 0},
               [&](Status status) { renamed.set_value(status); });
    EXPECT_TRUE(store.exists("p/dir/new"));
    store.release(Operation::kRemoveMany);
    EXPECT_TRUE(removed.get_future().get());
    EXPECT_TRUE(renamed.get_future().get());
    EXPECT_TRUE(sync_directory());
    EXPECT_TRUE(store.exists("p/dir/" + file(kFull)));
}

TEST_F(UnlinkBatchesTest, WhatAnotherMountWroteMeanwhileStays) {
    store.hold(Operation::kRemoveMany);
    remove_all(0, 20);
    ASSERT_TRUE(store.wait_until_held(Operation::kRemoveMany, 1));
    store.put_object("p/dir/" + file(17), "new");
    store.release(Operation::kRemoveMany);
    EXPECT_TRUE(sync_directory()) << "the version that was unlinked is gone";
    EXPECT_EQ(store.content("p/dir/" + file(17)), "new");
    EXPECT_FALSE(store.exists("p/dir/" + file(18)));
    EXPECT_TRUE(lookup(file(17), directory));
}

TEST_F(UnlinkBatchesTest, WhatAnotherMountHadWrittenBeforeIsRemoved) {
    store.make_etags_of_content();
    replace(18, std::chrono::seconds(25));
    replace(19, std::chrono::seconds(0));
    remove_all(0, 20);
    EXPECT_TRUE(sync_directory());
    EXPECT_FALSE(store.exists("p/dir/" + file(18))) << "it was there when it was unlinked";
    EXPECT_TRUE(store.exists("p/dir/" + file(19))) << "it may have come since";
}

TEST_F(UnlinkBatchesTest, WhatAnotherMountWroteAfterTheLookAtItStays) {
    store.make_etags_of_content();
    replace(18, std::chrono::seconds(25));
    // Sixteen go alone: the removal after those is the one of the version that was there.
    remove_all(0, 16);
    store.hold(Operation::kRemove);
    remove_all(16, 20);
    std::promise<Status> synced;
    fs->sync_directory(directory, [&](Status status) { synced.set_value(std::move(status)); });
    ASSERT_TRUE(store.wait_until_held(Operation::kRemove, 1));
    store.put_object("p/dir/" + file(18), "newer");
    store.release(Operation::kRemove);
    EXPECT_TRUE(synced.get_future().get());
    EXPECT_EQ(store.content("p/dir/" + file(18)), "newer");
}

class ObjectsDatedBefore : public UnlinkBatchesTest {
protected:
    ObjectsDatedBefore() : UnlinkBatchesTest(-std::chrono::seconds(60)) {}
};

// The store's own clock is behind that of a proxy, by whose answers the mount knows the time.
TEST_F(ObjectsDatedBefore, WhatAnotherMountWroteMeanwhileStaysAndIsTold) {
    store.make_etags_of_content();
    store.hold(Operation::kRemoveMany);
    remove_all(0, 20);
    ASSERT_TRUE(store.wait_until_held(Operation::kRemoveMany, 1));
    replace(17, std::chrono::seconds(0));
    store.release(Operation::kRemoveMany);
    EXPECT_EQ(errno_of(sync_directory()), EIO);
    EXPECT_EQ(store.content("p/dir/" + file(17)), "new");
    EXPECT_FALSE(store.exists("p/dir/" + file(18)));
}

// The fake's ETags look like those of objects that came in parts.
TEST_F(UnlinkBatchesTest, WhatMayHaveBeenUploadedForLongStaysAndIsTold) {
    replace(18, std::chrono::seconds(25));
    store.hold(Operation::kRemoveMany);
    remove_all(0, 20);
    store.release(Operation::kRemoveMany);
    EXPECT_EQ(errno_of(sync_directory()), EIO);
    EXPECT_EQ(store.content("p/dir/" + file(18)), "new");
    EXPECT_TRUE(remove(18));
    EXPECT_TRUE(sync_directory());
    EXPECT_FALSE(store.exists("p/dir/" + file(18)));
}

TEST(OtherVersions, AreJudgedByTheirTimeAndByHowLongTheirUploadMayHaveTaken) {
    const WallTime unlinked{std::chrono::hours(1000)};
    const auto judge = [&](std::chrono::seconds ago, const std::string& etag, std::uint64_t size) {
        ObjectInfo object;
        object.last_modified = unlinked - ago;
        object.etag = etag;
        object.size = size;
        EXPECT_EQ(judge_other_version(object, unlinked, false), OtherVersion::kUnknown);
        return judge_other_version(object, unlinked, true);
    };
    using std::chrono::seconds;
    EXPECT_EQ(judge(seconds(20), "\"a1\"", 1), OtherVersion::kWasThere);
    EXPECT_EQ(judge(seconds(19), "\"a1\"", 1), OtherVersion::kCameLater);
    EXPECT_EQ(judge(seconds(-5), "\"a1-3\"", 1), OtherVersion::kCameLater);
    EXPECT_EQ(judge(seconds(3600), "\"a1-3\"", 1), OtherVersion::kUnknown);
    EXPECT_EQ(judge(seconds(3600), "\"a1\"", (8U << 20) + 1), OtherVersion::kUnknown);
    EXPECT_EQ(judge(seconds(3600), "\"1-a\"", 1), OtherVersion::kWasThere);
    EXPECT_EQ(judge(seconds(21), "\"a1\"", 1U << 10), OtherVersion::kWasThere);
    EXPECT_EQ(judge(seconds(21), "\"a1\"", 1U << 20), OtherVersion::kWasThere);
    EXPECT_EQ(judge(seconds(21), "\"a1\"", (1U << 20) + 1), OtherVersion::kUnknown);
    EXPECT_EQ(judge(seconds(21), "\"a1\"", 8U << 20), OtherVersion::kUnknown) << "it may have been on its way";
    EXPECT_EQ(judge(seconds(119), "\"a1\"", 8U << 20), OtherVersion::kUnknown);
    EXPECT_EQ(judge(seconds(180), "\"a1\"", 8U << 20), OtherVersion::kWasThere);
    EXPECT_EQ(judge(seconds(19), "\"a1\"", 8U << 20), OtherVersion::kCameLater);
    EXPECT_EQ(judge(std::chrono::hours(1000), "\"a1\"", 1), OtherVersion::kUnknown) << "the store has not dated it";
}

TEST_F(UnlinkBatchesTest, WhatThisMountWroteSinceItListedTheDirectoryIsRemoved) {
    const NodeId written = lookup(file(18), directory)->node;
    const Result<OpenedFile> opened = open(written, O_WRONLY | O_TRUNC);
    ASSERT_TRUE(opened);
    ASSERT_TRUE(write(opened->handle, 0, "new"));
    ASSERT_TRUE(close(opened->handle));
    fs->forget(written, 1);
    const Result<CreatedFile> made = create("other", O_WRONLY, directory);
    ASSERT_TRUE(write(made->opened.handle, 0, "new"));
    ASSERT_TRUE(close(made->opened.handle));
    ASSERT_TRUE(rename("other", file(19), 0, directory));
    fs->forget(made->entry.node, 1);
    EXPECT_EQ(store.content("p/dir/" + file(18)), "new");
    EXPECT_EQ(store.content("p/dir/" + file(19)), "new");
    remove_all(0, 20);
    EXPECT_TRUE(sync_directory());
    EXPECT_FALSE(store.exists("p/dir/" + file(18)));
    EXPECT_FALSE(store.exists("p/dir/" + file(19)));
}

TEST_F(UnlinkBatchesTest, WhatIsLinkedWhereAnotherFileWasListedIsFound) {
    const NodeId temporary = save("x.partial", "longer");
    remove_all(0, 17);
    ASSERT_TRUE(answer<void>([this](auto reply) { store.remove("p/dir/" + file(50), reply); }));
    const Result<Entry> linked =
        answer<Entry>([&](auto reply) { fs->link(temporary, directory, file(50), {kProcess}, reply); });
    ASSERT_TRUE(linked);
    EXPECT_EQ(linked->attributes.size, 6U);
}

// The kernel looks once more, and creates what is not there where the caller asked for that.
TEST_F(UnlinkBatchesTest, WhatAnotherMountHasRemovedIsFoundOutByAnOpen) {
    for (const int flags : {O_RDONLY, O_WRONLY}) {
        const int i = 50 + flags;
        remove_all(17 * flags, 17 * flags + 17);
        ASSERT_TRUE(answer<void>([&](auto reply) { store.remove("p/dir/" + file(i), reply); }));
        const Result<Entry> listed = lookup(file(i), directory);
        ASSERT_TRUE(listed) << "during a run what was listed is believed";
        EXPECT_EQ(errno_of(open(listed->node, flags)), ESTALE);
        EXPECT_EQ(errno_of(lookup(file(i), directory)), ENOENT);
    }
}

TEST_F(UnlinkBatchesTest, WhatWasNotThereOnceIsNotTakenFromAnEarlierListing) {
    ASSERT_TRUE(answer<void>([&](auto reply) { store.remove("p/dir/" + file(50), reply); }));
    EXPECT_EQ(errno_of(lookup(file(50), directory)), ENOENT);
    remove_all(0, 17);
    EXPECT_EQ(errno_of(lookup(file(50), directory)), ENOENT);
}

TEST_F(UnlinkBatchesTest, WhatARenameOfTheDirectoryCopiedIsRemoved) {
    ASSERT_TRUE(rename("dir", "moved"));
    remove_all(0, 20);
    EXPECT_TRUE(sync_directory());
    EXPECT_FALSE(store.exists("p/moved/" + file(18)));
}

TEST_F(UnlinkBatchesTest, AStoreThatRefusesTheVersionItShowsIsTold) {
    store.change_removals([](RemoveRequest& request) { request.if_match += request.if_match.empty() ? "" : "?"; });
    store.hold(Operation::kRemoveMany);
    remove_all(0, 20);
    store.release(Operation::kRemoveMany);
    EXPECT_EQ(errno_of(sync_directory()), EIO);
    EXPECT_FALSE(store.exists("p/dir/" + file(15)));
    EXPECT_TRUE(store.exists("p/dir/" + file(19)));
}

TEST_F(UnlinkBatchesTest, FsyncOfTheDirectoryWaitsAndTellsOnce) {
    refuse_what_is_held();
    remove_all(0, 20);
    store.release(Operation::kRemoveMany);
    EXPECT_EQ(errno_of(sync_directory()), EACCES);
    EXPECT_TRUE(store.exists("p/dir/" + file(19)));
    store.clear_faults();
    EXPECT_TRUE(sync_directory());
}

TEST_F(UnlinkBatchesTest, AFailureIsToldAlsoWhereTheKernelForgotTheDirectory) {
    refuse_what_is_held();
    remove_all(0, 20);
    store.release(Operation::kRemoveMany);
    ASSERT_TRUE(eventually([&] { return store.calls(Operation::kRemoveMany) >= 3; }));
    list(directory);
    fs->forget(directory, 1);
    directory = lookup("dir")->node;
    EXPECT_EQ(errno_of(sync_directory()), EACCES);
}

TEST_F(UnlinkBatchesTest, WhoeverLooksWaitsAlsoWhereTheKernelForgotTheDirectoryMeanwhile) {
    store.hold(Operation::kRemoveMany);
    remove_all(0, 20);
    ASSERT_TRUE(store.wait_until_held(Operation::kRemoveMany, 1));
    fs->forget(directory, 1);
    directory = lookup("dir")->node;
    auto synced = std::async(std::launch::async, [this] { return sync_directory(); });
    auto found = std::async(std::launch::async, [this] { return lookup(file(19), directory); });
    EXPECT_EQ(synced.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
    EXPECT_EQ(found.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
    store.release(Operation::kRemoveMany);
    EXPECT_TRUE(synced.get());
    EXPECT_EQ(errno_of(found.get()), ENOENT);
    EXPECT_FALSE(store.exists("p/dir/" + file(19)));
    fs->forget(directory, 1);
    EXPECT_NE(lookup("dir")->node, directory) << "nothing keeps it any more";
    directory = lookup("dir")->node;
}

TEST_F(UnlinkBatchesTest, AFailureIsToldByTheNextRemovalAndTheNamesAreThereAgain) {
    refuse_what_is_held();
    remove_all(0, 20);
    store.release(Operation::kRemoveMany);
    const Names names = list(directory);
    EXPECT_EQ(names.size(), 86U);
    EXPECT_EQ(errno_of(remove(50)), EACCES);
    store.clear_faults();
    EXPECT_TRUE(remove(50));
    EXPECT_TRUE(lookup(file(17), directory));
}

TEST_F(UnlinkBatchesTest, ARefusalIsToldAlsoWhereTheStoreSpellsTheKeyOtherwise) {
    store.spell_refused_deletes_otherwise();
    store.hold(Operation::kRemoveMany);
    remove_all(0, 20);
    replace(18, std::chrono::seconds(60));
    store.release(Operation::kRemoveMany);
    EXPECT_EQ(errno_of(sync_directory()), EIO);
}

TEST_F(UnlinkBatchesTest, AFailureIsToldByRmdir) {
    refuse_what_is_held();
    remove_all(0, 100);
    store.release(Operation::kRemoveMany);
    EXPECT_EQ(errno_of(rmdir("dir")), EACCES);
    store.clear_faults();
    EXPECT_EQ(errno_of(rmdir("dir")), ENOTEMPTY);
    EXPECT_TRUE(store.exists("p/dir/" + file(17)));
}

TEST_F(UnlinkBatchesTest, AFailureIsToldByTheRenameOfADirectoryAbove) {
    store.put_object("p/top/", "");
    store.put_object("p/top/dir/", "");
    for (int i = 0; i < 20; ++i) {
        store.put_object("p/top/dir/" + file(i), "x");
    }
    refuse_what_is_held();
    const NodeId below = lookup("dir", lookup("top")->node)->node;
    for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(lookup(file(i), below));
        ASSERT_TRUE(unlink(file(i), below));
    }
    store.release(Operation::kRemoveMany);
    EXPECT_EQ(errno_of(rename("top", "other")), EACCES);
    store.clear_faults();
    EXPECT_TRUE(store.exists("p/top/dir/" + file(19)));
    EXPECT_TRUE(rename("top", "other"));
    EXPECT_TRUE(store.exists("p/other/dir/" + file(19)));
}

TEST_F(UnlinkBatchesTest, FailuresInManyDirectoriesAreToldByOneRename) {
    store.put_object("p/top/", "");
    const NodeId top = lookup("top")->node;
    // The second run goes on where the first one ended: all its names go together.
    for (const auto& [name, removed] : std::map<std::string, int>{{"one", 20}, {"two", 4}}) {
        store.put_object("p/top/" + name + "/", "");
        for (int i = 0; i < 20; ++i) {
            store.put_object("p/top/" + name + "/" + file(i), "x");
        }
        const NodeId below = lookup(name, top)->node;
        store.reset_calls();
        refuse_what_is_held();
        for (int i = 0; i < removed; ++i) {
            ASSERT_TRUE(lookup(file(i), below));
            ASSERT_TRUE(unlink(file(i), below));
        }
        store.release(Operation::kRemoveMany);
        list(below);
        EXPECT_GE(requests(Operation::kRemoveMany), 1);
    }
    store.clear_faults();
    EXPECT_EQ(errno_of(rename("top", "other")), EACCES);
    EXPECT_TRUE(rename("top", "other")) << "told, for both";
    EXPECT_TRUE(store.exists("p/other/one/" + file(19)));
    EXPECT_TRUE(store.exists("p/other/two/" + file(3)));
}

TEST_F(UnlinkBatchesTest, UnmountingWaitsForThem) {
    store.hold(Operation::kRemoveMany);
    remove_all(0, 20);
    ASSERT_TRUE(store.wait_until_held(Operation::kRemoveMany, 1));
    std::promise<Status> drained;
    std::future<Status> answer = drained.get_future();
    fs->drain([&](Status status) { drained.set_value(status); });
    EXPECT_EQ(answer.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
    store.release(Operation::kRemoveMany);
    EXPECT_TRUE(answer.get());
    EXPECT_FALSE(store.exists("p/dir/" + file(19)));
}

TEST_F(UnlinkBatchesTest, AFileThatIsOpenForWritingIsRemovedAtOnce) {
    remove_all(0, 20);
    const Result<CreatedFile> made = create("open", O_WRONLY, directory);
    ASSERT_TRUE(write(made->opened.handle, 0, "lost"));
    ASSERT_TRUE(fsync(made->opened.handle));
    ASSERT_TRUE(unlink("open", directory));
    EXPECT_FALSE(store.exists("p/dir/open"));
    ASSERT_TRUE(close(made->opened.handle));
    EXPECT_FALSE(store.exists("p/dir/open"));
}

}  // namespace
}  // namespace ckptfs::fs
