// SPDX-License-Identifier: Apache-2.0
// Listings that are under way while directories are renamed.
#include "fs/names/directory_listing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>

#include "directory_rename_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

constexpr std::size_t kFiles = 1500;
// After "." and "..", for which nothing is asked.
constexpr std::uint64_t kFirstName = 2;

// What the fixture has put there.
constexpr std::size_t kInOld = 3;

class DirectoryListingTest : public DirectoryRenameTest {
protected:
    void fill(const std::string& directory) {
        for (std::size_t file = 0; file < kFiles; ++file) {
            store.put_object(directory + "file" + std::to_string(10'000 + file), "x");
        }
    }
    using Entries = Result<std::vector<DirectoryEntry>>;

    Entries read_some(HandleId handle, std::uint64_t offset, std::size_t entries) {
        return answer<std::vector<DirectoryEntry>>(
            [&](auto reply) { fs->read_directory(handle, offset, entries, false, reply); });
    }
    HandleId open_directory(const std::string& name) {
        return *answer<HandleId>([&](auto reply) { fs->open_directory(lookup(name)->node, reply); });
    }
    // All names, of which `meanwhile` finds some on the first page read.
    Entries list_with(const std::function<void()>& meanwhile, const std::string& name = "old") {
        const HandleId handle = open_directory(name);
        const Entries first = read_some(handle, kFirstName, 10);
        EXPECT_TRUE(first);
        meanwhile();
        Entries all = first;
        for (bool at_end = false; all && !at_end;) {
            const Entries more = read_some(handle, all->back().next_offset, 100);
            if (!more) {
                all = more;
                break;
            }
            at_end = more->empty();
            all->insert(all->end(), more->begin(), more->end());
        }
        fs->release_directory(handle);
        return all;
    }
};

TEST_F(DirectoryListingTest, OfADirectoryThatAnotherMountRenamesDoesNotEndEarly) {
    fill("p/old/");
    EXPECT_EQ(errno_of(list_with([this] { ASSERT_TRUE(rename_with(store)); })), ESTALE);
}

TEST_F(DirectoryListingTest, OfADirectoryThatThisMountRenamesDoesNotEndEarly) {
    fill("p/old/");
    EXPECT_EQ(errno_of(list_with([this] { ASSERT_TRUE(rename("old", "new")); })), ESTALE);
}

// By a rename of another mount that is decided, and whose source is not deleted yet.
TEST_F(DirectoryListingTest, OfADirectoryThatIsHiddenMeanwhileDoesNotGoOn) {
    fill("p/old/");
    HookedStore mortal(store, [this](int /*request*/) { return is_decided() ? Fate::kFails : Fate::kPasses; });
    EXPECT_EQ(errno_of(list_with([&] { EXPECT_FALSE(rename_with(mortal)); })), ESTALE);
}

TEST_F(DirectoryListingTest, OfADirectoryThatIsRenamedAndMadeAnewDoesNotEndEarly) {
    // As on Amazon S3: the new directory's marker has the ETag of the earlier one.
    store.make_etags_of_content();
    fill("p/old/");
    EXPECT_EQ(errno_of(list_with([this] {
                  ASSERT_TRUE(rename_with(store));
                  store.put_object("p/old/", "");
                  store.put_object("p/old/file99999", "x");
              })),
              ESTALE);
}

TEST_F(DirectoryListingTest, OfADirectoryThatAnotherMountRenamesDoesNotShowWhatWasSavedThereLate) {
    fill("p/old/");
    EXPECT_EQ(errno_of(list_with([this] {
                  ASSERT_TRUE(rename_with(store));
                  store.put_object("p/old/file99999", "x");
              })),
              ESTALE);
}

TEST_F(DirectoryListingTest, ShowsWhatItsPageSaysAndNotWhatWasKnownBefore) {
    fill("p/old/");
    const HandleId handle = open_directory("old");
    const Entries first = read_some(handle, kFirstName, 10);
    ASSERT_TRUE(first);
    // On the second page.
    const std::string name = "file" + std::to_string(10'000 + kFiles - 1);
    clock.advance(Milliseconds(10));
    ASSERT_TRUE(lookup(name, lookup("old")->node));
    clock.advance(Milliseconds(10));
    store.put_object("p/old/" + name, "longer");
    clock.advance(Milliseconds(10));
    std::uint64_t size = 0;
    for (std::uint64_t next = first->back().next_offset;;) {
        const Entries more = answer<std::vector<DirectoryEntry>>(
            [&](auto reply) { fs->read_directory(handle, next, 100, true, reply); });
        ASSERT_TRUE(more);
        if (more->empty()) {
            break;
        }
        for (const DirectoryEntry& entry : *more) {
            size = entry.name == name ? entry.entry.attributes.size : size;
        }
        next = more->back().next_offset;
    }
    EXPECT_EQ(size, 6U);
    fs->release_directory(handle);
}

TEST_F(DirectoryListingTest, ShowsTheSizeOfWhatIsSavedBehindItsPage) {
    fill("p/old/");
    const NodeId old = lookup("old")->node;
    const HandleId writing = create("aaa", O_WRONLY, old)->opened.handle;
    ASSERT_TRUE(write(writing, 0, "content"));
    const HandleId handle = open_directory("old");
    const Entries first = read_some(handle, kFirstName, 10);
    ASSERT_TRUE(first);
    clock.advance(Milliseconds(10));
    ASSERT_TRUE(close(writing));
    clock.advance(Milliseconds(10));
    std::map<std::string, std::uint64_t> sizes;
    for (std::uint64_t next = first->back().next_offset;;) {
        const Entries more = answer<std::vector<DirectoryEntry>>(
            [&](auto reply) { fs->read_directory(handle, next, 100, true, reply); });
        ASSERT_TRUE(more);
        if (more->empty()) {
            break;
        }
        for (const DirectoryEntry& entry : *more) {
            sizes[entry.name] = entry.entry.attributes.size;
        }
        next = more->back().next_offset;
    }
    EXPECT_EQ(sizes.at("aaa"), 7U);
    EXPECT_EQ(lookup("aaa", old)->attributes.size, 7U);
    fs->release_directory(handle);
}

// Its marker is written, and is the one of the same directory.
TEST_F(DirectoryListingTest, GoesOnWhereARenameIsUndone) {
    fill("p/old/");
    const Entries listed = list_with([this] {
        const std::string before = store.info("p/old/").etag;
        DirectoryRename rename(store, its_clock, kRepairAfter, {"p/", "p/old/", "p/new/", ""});
        DirectoryRenameSteps steps;
        steps.prepare = [this] {
            its_clock.advance(kRecordLead);
            return Status{};
        };
        steps.allow = [](const std::vector<ObjectInfo>&) { return Status{}; };
        steps.note_failures = [](const std::vector<ObjectInfo>&) { return Status(failure(EIO, "a file has failed")); };
        EXPECT_EQ(errno_of(rename.run(steps)), EIO);
        EXPECT_NE(store.info("p/old/").etag, before);
    });
    ASSERT_TRUE(listed);
    EXPECT_EQ(listed->size(), kFiles + kInOld);
}

TEST_F(DirectoryListingTest, GoesOnWhereNamesAreRemoved) {
    for (const char* directory : {"p/old/", "p/implied/"}) {
        fill(directory);
    }
    for (const char* name : {"old", "implied"}) {
        const Entries listed = list_with(
            [&, this] { ASSERT_TRUE(SyncStore(store).remove("p/" + std::string(name) + "/file11200")); }, name);
        ASSERT_TRUE(listed);
        EXPECT_GE(listed->size(), kFiles - 1);
    }
}

// Its first page is asked for once more.
TEST_F(DirectoryListingTest, ThatBeginsWhileThisMountRenamesTheDirectoryHasTheWholeUnderItsNewName) {
    std::atomic<bool> listing = false;
    HookedStore hooked(store, [&](int) {
        if (listing.exchange(false)) {
            EXPECT_TRUE(rename("old", "new"));
        }
        return Fate::kPasses;
    });
    fs = make_mount("here", hooked);
    const HandleId handle = open_directory("old");
    listing = true;
    const Entries listed = read_some(handle, kFirstName, 100);
    ASSERT_TRUE(listed);
    EXPECT_EQ(listed->size(), kInOld);
    fs->release_directory(handle);
    blocking.reset();
    fs.reset();
}

TEST_F(DirectoryListingTest, CostsOneRequestMoreForEachPageThatFollows) {
    fill("p/old/");
    const auto requests_of = [this](const std::string& name) {
        static_cast<void>(lookup(name));
        store.reset_calls();
        EXPECT_TRUE(list_with([] {}, name));
        return store.calls();
    };
    EXPECT_EQ(requests_of("old"), 4) << "two pages, the renames, and whether the directory is there";
    clock.advance(Milliseconds(1001));
    store.put_object("p/small/file", "x");
    EXPECT_EQ(requests_of("small"), 2) << "one page, and the renames";
    clock.advance(Milliseconds(1001));
    store.put_object("p/small/directory/file", "x");
    EXPECT_EQ(requests_of("small"), 2) << "the page is answered a moment after the renames";
}

// The other mount's rename is decided after the source was looked at, and before the destination is.
TEST_F(DirectoryListingTest, OfTheParentDoesNotShowBothNames) {
    store.put_object("p/a/file", "x");
    std::promise<void> stands;
    std::promise<void> may_end;
    std::atomic<bool> stood = false;
    HookedStore its_store(store, [&](int) {
        if (store.exists("p/b/file") && !stood.exchange(true)) {
            stands.set_value();
            may_end.get_future().wait();
        }
        return Fate::kPasses;
    });
    auto renamed = std::async(std::launch::async, [&] { return rename_with(its_store, "p/a/", "p/b/"); });
    stands.get_future().wait();
    HookedStore seen(store, [](int) { return Fate::kPasses; });
    seen.before_list("p/b/", [&] {
        may_end.set_value();
        EXPECT_TRUE(renamed.get());
    });
    fs = make_mount("here", seen);
    EXPECT_EQ(list(), (Names{".", "..", "b", "old"}));
    blocking.reset();
    fs.reset();
}

// A directory that a record names, and that cannot be looked at, may be shown or hidden: who looks for the latest
// checkpoint is not to take the one before.
TEST_F(DirectoryListingTest, OfTheParentFailsWhereItIsNotKnownWhatIsHidden) {
    rename_and_be_killed_while_copying();
    for (const Operation operation : {Operation::kList, Operation::kHead}) {
        store.inject({operation, operation == Operation::kList ? "p/old/" : "p/old",
                      store_error(EACCES, "AccessDenied", 403), 0, 100, false});
    }
    const HandleId root = *answer<HandleId>([&](auto reply) { fs->open_directory(kRootNode, std::move(reply)); });
    EXPECT_EQ(errno_of(read_some(root, kFirstName, 10)), EACCES);
    fs->release_directory(root);
    store.clear_faults();
    EXPECT_EQ(list(), (Names{".", "..", "old"}));
}

// A list of names that was sent again, long after that of the renames was answered.
TEST_F(DirectoryListingTest, OfTheParentThatIsLateDoesNotShowTheHiddenName) {
    HookedStore seen(store, [](int) { return Fate::kPasses; });
    seen.before_list("p/", [&] {
        rename_and_be_killed_while_copying();
        clock.advance(kRecordLead);
    });
    fs = make_mount("here", seen);
    EXPECT_EQ(list(), (Names{".", "..", "old"}));
    blocking.reset();
    fs.reset();
}

}  // namespace
}  // namespace ckptfs::fs
