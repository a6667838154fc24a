// SPDX-License-Identifier: Apache-2.0
// What fails while its directory is renamed.
#include <future>
#include <set>
#include <string>

#include "file_system_fixture.h"
#include "fs/failures/failed_siblings.h"
#include "fs/objects/directory_marker.h"
#include "staged/hidden_key.h"
#include "support/sync_store.h"
#include "write/part_plan.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

constexpr const char* kRecord = "p/.ckptfs/failed/new/shard";

class MovedFailuresTest : public FileSystemTest {
protected:
    FailedSiblings failed{store, clock, timer, {"p/", "here", WriteConfig().failed_sibling_ttl}, {}};

    // Until the rename holds its decision back.
    std::future<Status> rename_up_to_its_decision() {
        store.hold(Operation::kList);
        auto renamed = std::async(std::launch::async, [this] { return rename("old", "new"); });
        while (store.wait_until_held(Operation::kList, 1) && !may_hide_directory(store.info("p/old/").size)) {
            store.release_one(Operation::kList);
        }
        // Of what was there when it was hidden, then of what failed there.
        store.release_one(Operation::kList);
        EXPECT_TRUE(store.wait_until_held(Operation::kList, 1));
        store.hold(Operation::kPut);
        store.release(Operation::kList);
        EXPECT_TRUE(store.wait_until_held(Operation::kPut, 1));
        return renamed;
    }
    Status write_blocks(HandleId handle, std::uint64_t begin, std::uint64_t end) {
        Status written;
        for (std::uint64_t block = begin; block < end && written; ++block) {
            written = write(handle, block << 20, std::string(std::size_t{1} << 20, 'a'));
        }
        return written;
    }
    // As hidden keys tell.
    std::set<std::string> keys_being_uploaded() {
        std::set<std::string> keys;
        const auto uploads = answer<std::vector<OpenUpload>>([&](auto done) { store.list_uploads("p/", done); });
        for (const OpenUpload& upload : *uploads) {
            const std::optional<HiddenFile> hidden = parse_hidden_key("p/", upload.upload.key);
            keys.insert(hidden ? hidden->key : upload.upload.key);
        }
        return keys;
    }
    // Its record waits behind the decision.
    void fail(HandleId handle) {
        store.inject({Operation::kCreateUpload, "", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
        for (std::uint64_t block = 0; block < 24; ++block) {
            static_cast<void>(write(handle, block << 20, std::string(std::size_t{1} << 20, 'a')));
        }
        EXPECT_TRUE(store.wait_until_held(Operation::kPut, 2));
    }
};

TEST_F(MovedFailuresTest, WhatFailsAsADirectoryRenameIsDecidedHasItsNewNameBeforeOtherMountsSeeTheDirectory) {
    const NodeId old = mkdir("old")->node;
    const HandleId handle = create("shard", O_WRONLY, old)->opened.handle;
    ASSERT_TRUE(write(handle, 0, "half"));
    std::future<Status> renamed = rename_up_to_its_decision();
    fail(handle);
    store.hold(Operation::kRemoveMany);
    store.release(Operation::kPut);
    EXPECT_TRUE(eventually([&] { return store.exists("p/new/") && store.content("p/new/").empty(); }));
    EXPECT_EQ(store.content("p/new/shard"), "half");
    switch_mounts();
    const NodeId directory = lookup("new")->node;
    const HandleId marker = create("m.tmp", O_WRONLY, directory)->opened.handle;
    ASSERT_TRUE(write(marker, 0, "metadata") && close(marker));
    EXPECT_EQ(errno_of(rename("m.tmp", ".metadata", 0, directory)), EIO);
    switch_mounts();
    store.release(Operation::kRemoveMany);
    EXPECT_TRUE(renamed.get());
    EXPECT_TRUE(store.exists(kRecord));
    EXPECT_FALSE(store.exists("p/new/.metadata"));
    EXPECT_TRUE(eventually([&] { return !store.exists("p/.ckptfs/failed/old/shard"); }));
    static_cast<void>(close(handle));
}

// Other mounts see by its upload that a file is missing, and take it for what its hidden key says.
TEST_F(MovedFailuresTest, NoUploadGoesOnUnderTheNameThatItsDirectoryHad) {
    for (const std::uint64_t blocks : {kFirstPartSize >> 20, std::uint64_t{24}}) {
        const NodeId old = mkdir("old")->node;
        const HandleId copied = create("copied", O_WRONLY, old)->opened.handle;
        ASSERT_TRUE(write(copied, 0, "copied") && close(copied));
        store.hold(Operation::kCopy);
        auto renamed = std::async(std::launch::async, [this] { return rename("old", "new"); });
        ASSERT_TRUE(store.wait_until_held(Operation::kCopy, 1));
        const HandleId shard = create("shard", O_RDWR, old)->opened.handle;
        ASSERT_TRUE(write_blocks(shard, 0, blocks));
        store.release(Operation::kCopy);
        ASSERT_TRUE(renamed.get());
        if (write_blocks(shard, blocks, blocks + 24)) {
            EXPECT_TRUE(eventually([&] { return keys_being_uploaded() == std::set<std::string>{"p/new/shard"}; }));
            EXPECT_TRUE(close(shard));
            EXPECT_EQ(store.info("p/new/shard").size, (blocks + 24) << 20);
        } else {
            EXPECT_EQ(errno_of(close(shard)), EIO);
            EXPECT_TRUE(eventually([&] { return keys_being_uploaded().empty() && store.exists(kRecord); }));
            EXPECT_FALSE(store.exists("p/.ckptfs/failed/old/shard"));
        }
        EXPECT_TRUE(unlink("shard", lookup("new")->node) && unlink("copied", lookup("new")->node));
        EXPECT_TRUE(rmdir("new"));
    }
}

// A copy made of parts, or encrypted with another key, has another ETag.
TEST_F(MovedFailuresTest, TheCopyOfTheVersionThatStayedMakesNothingGood) {
    store.put_object("p/old/shard", "half");
    failed.add({"p/old/shard", "killed", store.info("p/old/shard").etag});
    store.put_object("p/new/shard", "half");
    ASSERT_TRUE(SyncStore(store).remove("p/old/shard"));
    failed.directory_renamed("p/old/", "p/new/", [] {});
    EXPECT_TRUE(store.exists(kRecord));
    EXPECT_TRUE(failed.knows("p/new/shard"));
    EXPECT_FALSE(store.exists("p/.ckptfs/failed/old/shard"));
    FailedRecord record = parse_record(store.exists(kRecord) ? store.content(kRecord) : "");
    record.failed = store.exists(kRecord) ? store.info(kRecord).last_modified : WallTime{};
    // The store has a clock of its own here.
    record.since.reset();
    EXPECT_TRUE(still_failed(record, {store.info("p/new/shard"), {}}, record.failed, Milliseconds(1000)));
}

TEST_F(MovedFailuresTest, WhatAnotherMountSavedWhereNothingWasIsGood) {
    failed.add({"p/old/shard", "killed", ""});
    store.put_object("p/new/shard", "whole");
    failed.directory_renamed("p/old/", "p/new/", [] {});
    EXPECT_FALSE(store.exists(kRecord));
    EXPECT_FALSE(failed.knows("p/new/shard"));
}

}  // namespace
}  // namespace ckptfs::fs
