// SPDX-License-Identifier: Apache-2.0
// Files that are saved, and that a process still holds open for writing, while another mount changes the bucket.
#include <fcntl.h>

#include <future>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

// As OpenFiles waits.
constexpr Milliseconds kFlushFollows{10};

class HeldOpen : public FileSystemTest {
protected:
    // Saved; its writer has closed it, and a child process has not.
    HandleId hold(const std::string& name, const std::string& text, int flags = O_WRONLY, NodeId parent = kRootNode) {
        const HandleId handle = create(name, flags, parent)->opened.handle;
        EXPECT_TRUE(write(handle, 0, text) && flush(handle));
        return handle;
    }
    HandleId open_as(const std::string& name, pid_t process) {
        return answer<OpenedFile>([&](auto reply) {
                   fs->open(lookup(name)->node, O_RDWR, Caller{process, 0, 0}, reply);
               })
            ->handle;
    }
    void write_as(HandleId handle, pid_t process, const std::string& text, const Reply<void>& reply) {
        Buffer buffer = *pool->try_take(MemoryUse::kReceive);
        std::memcpy(buffer.data(), text.data(), text.size());
        const ByteSpan data(buffer.data(), text.size());
        fs->write(handle, 0, WriteData{std::move(buffer), data}, Caller{process, 0, 0}, reply);
    }
    void remove_on_another_mount(const std::string& key) {
        ASSERT_TRUE(answer<void>([&](auto reply) { store.remove(key, reply); }));
    }
    void names_are_believed_no_more() { clock.advance(Milliseconds(1001)); }
};

TEST_F(HeldOpen, IsSeenAsAnotherMountHasLeftIt) {
    const HandleId held = hold("f", "v1");
    const NodeId node = lookup("f")->node;
    store.put_object("p/f", "longer");
    EXPECT_EQ(lookup("f")->node, node) << "for as long as any name is believed";
    names_are_believed_no_more();
    const Result<Entry> replaced = lookup("f");
    EXPECT_EQ(replaced->attributes.size, 6U);
    EXPECT_NE(replaced->node, node);
    EXPECT_NE(replaced->attributes.inode, getattr(node)->inode) << "it can be told from the one that is held";
    remove_on_another_mount("p/f");
    names_are_believed_no_more();
    EXPECT_EQ(errno_of(lookup("f")), ENOENT);
    EXPECT_TRUE(close(held));
    EXPECT_FALSE(store.exists("p/f"));
}

TEST_F(HeldOpen, KeepsItsNodeWhereNothingHasChanged) {
    const HandleId held = hold("f", "v1");
    const NodeId node = lookup("f")->node;
    names_are_believed_no_more();
    EXPECT_EQ(lookup("f")->node, node);
    ASSERT_TRUE(write(held, 2, " and more") && fsync(held));
    names_are_believed_no_more();
    const Result<Entry> found = lookup("f");
    EXPECT_EQ(found->node, node);
    EXPECT_EQ(found->attributes.size, 11U);
    EXPECT_TRUE(close(held));
}

TEST_F(HeldOpen, KeepsItsNameWhileThereIsSomethingToSave) {
    const HandleId held = hold("f", "v1");
    ASSERT_TRUE(write(held, 2, " and more"));
    store.put_object("p/f", "of another");
    names_are_believed_no_more();
    EXPECT_EQ(lookup("f")->attributes.size, 11U);
    remove_on_another_mount("p/f");
    names_are_believed_no_more();
    EXPECT_EQ(lookup("f")->attributes.size, 11U);
    EXPECT_TRUE(close(held));
    EXPECT_EQ(store.content("p/f"), "v1 and more");
}

TEST_F(HeldOpen, IsNotJoinedByWhoOpensItOnceItWasReplaced) {
    const HandleId held = hold("f", "v1", O_RDWR);
    const NodeId node = lookup("f")->node;
    EXPECT_TRUE(close(open(node, O_RDWR)->handle)) << "the same version";
    store.put_object("p/f", "of another");
    EXPECT_EQ(errno_of(open(node, O_RDWR)), ESTALE);
    const HandleId changing = open(lookup("f")->node, O_RDWR)->handle;
    EXPECT_EQ(read(changing).value_or("error"), "of another");
    ASSERT_TRUE(write(changing, 0, "OF") && close(changing));
    EXPECT_EQ(store.content("p/f"), "OF another");
    EXPECT_EQ(errno_of(read(held)), ESTALE) << "its version is gone, and no other is shown for it";
    EXPECT_TRUE(close(held));
    EXPECT_EQ(store.content("p/f"), "OF another");
}

TEST_F(HeldOpen, IsCreatedAnewOnceItWasRemoved) {
    const HandleId held = hold("f", "v1");
    const NodeId node = lookup("f")->node;
    remove_on_another_mount("p/f");
    EXPECT_EQ(errno_of(open_beside(node, O_WRONLY)), ESTALE);
    EXPECT_EQ(errno_of(lookup("f")), ENOENT);
    ASSERT_TRUE(close(create("f")->opened.handle));
    EXPECT_TRUE(store.exists("p/f"));
    EXPECT_TRUE(close(held));
}

TEST_F(HeldOpen, IsNotThereForWhoOpensItToReadOnceItWasRemoved) {
    const HandleId held = hold("f", "v1");
    const NodeId node = lookup("f")->node;
    remove_on_another_mount("p/f");
    EXPECT_EQ(errno_of(open(node, O_RDONLY)), ESTALE);
    EXPECT_EQ(errno_of(lookup("f")), ENOENT);
    EXPECT_TRUE(close(held));
}

// It has grown beyond what waits on the disk: what it was sent to under another key is removed before the commit is
// answered.
TEST_F(HeldOpen, IsNotTakenForAnotherVersionBeforeItsCommitIsAnswered) {
    const HandleId held = hold("f", "v1", O_RDWR);
    const NodeId node = lookup("f")->node;
    names_are_believed_no_more();
    for (std::uint64_t block = 0; block < 12; ++block) {
        ASSERT_TRUE(write(held, 2 + (block << 20), std::string(std::size_t{1} << 20, 'x')));
    }
    ASSERT_TRUE(eventually([&] { return store.calls(Operation::kUploadPart) >= 1; }));
    store.hold(Operation::kRemove);
    auto synced = std::async(std::launch::async, [&] { return fsync(held); });
    const bool is_in_the_bucket = store.wait_until_held(Operation::kRemove, 1);
    EXPECT_EQ(lookup("f")->node, node);
    const Result<OpenedFile> other = open(node, O_WRONLY);
    const int asked = store.calls(Operation::kGet);
    auto opened = std::async(std::launch::async, [&] { return open(node, O_RDONLY); });
    const bool has_asked = eventually([&] { return store.calls(Operation::kGet) > asked; });
    store.release(Operation::kRemove);
    EXPECT_TRUE(is_in_the_bucket && has_asked);
    EXPECT_TRUE(synced.get());
    const Result<OpenedFile> reader = opened.get();
    ASSERT_TRUE(other && reader);
    EXPECT_TRUE(close(other->handle) && close(reader->handle));
    EXPECT_EQ(lookup("f")->node, node);
    EXPECT_TRUE(close(held));
}

// The question was about what is saved, and the answer comes when there is more.
TEST_F(HeldOpen, IsJoinedByWhoAskedBeforeItWasWrittenOn) {
    const HandleId held = hold("f", "v1", O_RDWR);
    const NodeId node = lookup("f")->node;
    store.hold(Operation::kHead);
    auto opened = std::async(std::launch::async, [&] { return open(node, O_RDWR); });
    ASSERT_TRUE(store.wait_until_held(Operation::kHead, 1));
    ASSERT_TRUE(write(held, 0, "v1 and more"));
    store.put_object("p/f", "of another");
    store.release(Operation::kHead);
    const Result<OpenedFile> joined = opened.get();
    ASSERT_TRUE(joined) << joined.error().message;
    EXPECT_EQ(read(joined->handle).value_or("error"), "v1 and more");
    EXPECT_TRUE(release(joined->handle));
    EXPECT_TRUE(close(held));
    EXPECT_EQ(store.content("p/f"), "v1 and more");
}

TEST_F(HeldOpen, IsListedAsAnotherMountHasLeftIt) {
    const HandleId held = hold("f", "v1");
    names_are_believed_no_more();
    const auto listed = [this] {
        const HandleId handle = *answer<HandleId>([&](auto reply) { fs->open_directory(kRootNode, reply); });
        const auto entries =
            answer<std::vector<DirectoryEntry>>([&](auto reply) { fs->read_directory(handle, 2, 7, true, reply); });
        fs->release_directory(handle);
        return *entries;
    };
    const NodeId node = lookup("f")->node;
    EXPECT_EQ(listed().at(0).entry.node, node);
    clock.advance(Milliseconds(1));
    store.put_object("p/f", "longer");
    EXPECT_EQ(listed().at(0).entry.attributes.size, 6U);
    remove_on_another_mount("p/f");
    clock.advance(Milliseconds(1));
    EXPECT_TRUE(listed().empty());
    EXPECT_TRUE(close(held));
}

TEST_F(HeldOpen, DoesNotShowItsDirectoryOnceBothWereRemoved) {
    const NodeId directory = mkdir("d")->node;
    const HandleId held = hold("f", "v1", O_WRONLY, directory);
    remove_on_another_mount("p/d/f");
    remove_on_another_mount("p/d/");
    names_are_believed_no_more();
    EXPECT_EQ(errno_of(lookup("d")), ENOENT);
    EXPECT_TRUE(mkdir("d"));
    EXPECT_TRUE(close(held));
    EXPECT_FALSE(store.exists("p/d/f"));
}

// The store was asked before, and its answer comes when the file is there.
TEST_F(HeldOpen, KeepsADirectoryThatItsCommitHasMadeMeanwhile) {
    const NodeId directory = mkdir("d")->node;
    const HandleId held = create("f", O_WRONLY, directory)->opened.handle;
    ASSERT_TRUE(write(held, 0, "v1"));
    remove_on_another_mount("p/d/");
    names_are_believed_no_more();
    store.hold_answers(Operation::kList);
    auto looked = std::async(std::launch::async, [&] { return lookup("d"); });
    ASSERT_TRUE(store.wait_until_held(Operation::kList, 1));
    clock.advance(Milliseconds(1));
    EXPECT_TRUE(flush(held));
    store.release(Operation::kList);
    const Result<Entry> found = looked.get();
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->node, directory);
    EXPECT_TRUE(close(held));
}

TEST_F(HeldOpen, DoesNotKeepItsDirectoryOnceItWasRemoved) {
    const NodeId directory = mkdir("d")->node;
    const HandleId held = hold("f", "v1", O_RDWR, directory);
    EXPECT_EQ(errno_of(rmdir("d")), ENOTEMPTY);
    remove_on_another_mount("p/d/f");
    EXPECT_TRUE(rmdir("d"));
    EXPECT_TRUE(write(held, 0, "V") && close(held));
    EXPECT_TRUE(store.keys().empty()) << "what is written without a name leads nowhere";
}

TEST_F(HeldOpen, WhatHasFailedIsGoneForWhoOpensItAsItIsReleased) {
    for (const int flags : {O_RDWR, O_WRONLY, O_WRONLY | O_APPEND}) {
        const CreatedFile failed = *create("f", O_RDWR);
        ASSERT_TRUE(write(failed.opened.handle, 0, "half"));
        processes.killed = kProcess;
        ASSERT_TRUE(flush(failed.opened.handle));
        const auto opened = answer<OpenedFile>([&](auto reply) {
            fs->open(failed.entry.node, flags, Caller{kProcess + 1, 0, 0}, reply);
            EXPECT_TRUE(release(failed.opened.handle));
            timer.run(Milliseconds(1));
        });
        processes.killed = 0;
        EXPECT_EQ(errno_of(opened), ESTALE);
        // As the kernel asks after that, once.
        EXPECT_EQ(errno_of(lookup("f")), ENOENT) << flags;
    }
}

// By one that only inherited the descriptor.
TEST_F(HeldOpen, ACloseWaitsForTheFlushOfOneThatIsBeingKilled) {
    const HandleId handle = create("f")->opened.handle;
    const auto close_by_child = [&] {
        return std::async(std::launch::async, [&] { return flush(handle, kProcess + 1); });
    };
    for (const bool goes_on : {true, false}) {
        ASSERT_TRUE(write(handle, 0, goes_on ? "text" : "half"));
        processes.being_killed = kProcess;
        auto closed = close_by_child();
        ASSERT_TRUE(eventually([&] { return timer.waiting(kFlushFollows) == 1; }));
        timer.run(kFlushFollows);
        ASSERT_TRUE(eventually([&] { return timer.waiting(kFlushFollows) == 1; }));
        EXPECT_EQ(store.exists("p/f"), !goes_on);
        if (goes_on) {
            processes.being_killed = -1;
        } else {
            clock.advance(StoreConfig().retry_for);
        }
        timer.run(kFlushFollows);
        EXPECT_TRUE(closed.get());
        EXPECT_EQ(store.content("p/f"), "text");
    }
}

// The close was decided before, while an upload kept the file's place.
TEST_F(HeldOpen, ACloseThatHasWaitedForItsTurnPublishesNoHalf) {
    constexpr pid_t kOther = kProcess + 1;
    const HandleId first = create("f")->opened.handle;
    ASSERT_TRUE(write(first, 0, "whole"));
    const HandleId second = open_as("f", kOther);
    ASSERT_TRUE(answer<void>([&](auto reply) { write_as(second, kOther, "WHOLE", reply); }));
    store.hold(Operation::kPut);
    auto synced = std::async(std::launch::async, [&] { return fsync(first); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    write_as(second, kOther, "Whole", [](const Status&) {});
    const int asked = processes.times_asked_for_deaths;
    auto closed = std::async(std::launch::async, [&] { return flush(second, kOther); });
    ASSERT_TRUE(eventually([&] { return processes.times_asked_for_deaths > asked; }));
    write_as(first, kProcess, "half ", [](const Status&) {});
    processes.being_killed = kProcess;
    store.release(Operation::kPut);
    EXPECT_TRUE(synced.get());
    EXPECT_EQ(errno_of(closed.get()), EIO);
    EXPECT_EQ(store.content("p/f"), "WHOLE");
}

// By any of those that opened it to read and write.
TEST_F(HeldOpen, WhatOneThatIsBeingKilledHasWrittenByAMappingIsNotPublishedByAnother) {
    const HandleId mapping = hold("f", "whole", O_RDWR);
    ASSERT_TRUE(write(mapping, 0, "half ", true));
    processes.being_killed = kProcess;
    const HandleId other = open_as("f", kProcess + 1);
    EXPECT_EQ(errno_of(fsync(other)), EIO);
    EXPECT_EQ(errno_of(rename("f", "g")), EIO);
    EXPECT_EQ(store.content("p/f"), "whole");
    EXPECT_FALSE(store.exists("p/g"));
}

// It has inherited the descriptor from one that lives, and no FLUSH tells of its death.
TEST_F(HeldOpen, WhatAChildThatIsKilledHasWrittenByAMappingIsNotPublished) {
    constexpr pid_t kChild = kProcess + 1;
    for (const bool is_killed : {true, false}) {
        const HandleId mapping = hold("f", "whole", O_RDWR);
        ASSERT_TRUE(flush(mapping, kProcess) && flush(mapping, kChild));
        ASSERT_TRUE(write(mapping, 0, "half ", true));
        processes.killed = is_killed ? kChild : 0;
        ASSERT_TRUE(release(mapping));
        EXPECT_EQ(store.content("p/f"), is_killed ? "whole" : "half ");
    }
}

TEST_F(HeldOpen, WhatAKilledMakerHasLeftIsNotPublishedAtASizeThatWasSetByName) {
    store.put_object("p/f", "whole");
    const NodeId node = lookup("f")->node;
    const HandleId maker = open(node, O_WRONLY | O_TRUNC)->handle;
    const HandleId other = open_as("f", kProcess + 1);
    AttributeChange longer;
    longer.size = 100;
    ASSERT_TRUE(answer<Attributes>([&](auto reply) { fs->setattr(node, std::nullopt, longer, reply); }));
    processes.killed = kProcess;
    processes.others_write = true;
    EXPECT_TRUE(flush(maker) && release(maker));
    processes.others_write = false;
    static_cast<void>(flush(other, kProcess + 1));
    EXPECT_TRUE(release(other));
    EXPECT_EQ(store.content("p/f"), "whole");
}

// Its FLUSH has come, and another process has written on since.
TEST_F(HeldOpen, ADeathThatHasCountedFailsNoLaterSync) {
    constexpr pid_t kOther = kProcess + 1;
    const HandleId first = create("f", O_RDWR)->opened.handle;
    ASSERT_TRUE(write(first, 0, "half"));
    const HandleId second = open_as("f", kOther);
    processes.killed = processes.being_killed = kProcess;
    ASSERT_TRUE(flush(first));
    EXPECT_EQ(errno_of(fsync(second)), EIO) << "nothing was written since";
    for (const char* text : {"text", "more"}) {
        ASSERT_TRUE(answer<void>([&](auto reply) { write_as(second, kOther, text, reply); }));
        EXPECT_TRUE(flush(first)) << "another of its descriptors";
        EXPECT_TRUE(fsync(second));
        EXPECT_EQ(store.content("p/f"), text);
    }
}

// Of one that has not written, as far as is known: what a process changes by a mapping is not known to be its own.
TEST_F(HeldOpen, ACloseFailsAfterASyncOfWhatAKilledWriterLeft) {
    for (const bool is_synced : {false, true}) {
        const HandleId first = create("f", O_RDWR)->opened.handle;
        ASSERT_TRUE(write(first, 0, "half"));
        const HandleId second = open_as("f", kProcess + 1);
        processes.killed = kProcess;
        processes.others_write = true;
        ASSERT_TRUE(flush(first));
        processes.killed = 0;
        if (is_synced) {
            EXPECT_EQ(errno_of(fsync(second)), EIO);
        }
        EXPECT_EQ(errno_of(flush(second, kProcess + 1)), is_synced ? EIO : 0);
        processes.others_write = false;
        EXPECT_TRUE(release(first) && release(second));
        EXPECT_FALSE(store.exists("p/f"));
    }
}

// A file of which nothing was sent could be sent under its new name at once.
TEST_F(HeldOpen, ARenameThatIsRefusedWhileAWriterIsBeingKilledLeavesItItsName) {
    const HandleId handle = create("f")->opened.handle;
    ASSERT_TRUE(write(handle, 0, "half"));
    processes.being_killed = kProcess;
    EXPECT_EQ(errno_of(rename("f", "g")), EIO);
    EXPECT_TRUE(store.keys().empty());
    processes.being_killed = -1;
    ASSERT_TRUE(write(handle, 0, "text"));
    EXPECT_TRUE(close(handle));
    EXPECT_EQ(store.content("p/f"), "text");
    EXPECT_FALSE(store.exists("p/g"));
}

// Its caller was killed, and the kernel has forgotten the file since.
TEST_F(FileSystemTest, AnOpenThatNobodyWaitsForTakesNoNameFromAWriter) {
    store.put_object("p/f", "one");
    const NodeId forgotten = lookup("f")->node;
    store.hold(Operation::kGet);
    std::promise<Result<OpenedFile>> answered;
    fs->open(forgotten, O_RDONLY, Caller{kProcess, 0, 0},
             [&answered](Result<OpenedFile> opened) { answered.set_value(std::move(opened)); });
    ASSERT_TRUE(store.wait_until_held(Operation::kGet, 1));
    fs->forget(forgotten, 1);
    const NodeId node = lookup("f")->node;
    ASSERT_NE(node, forgotten);
    const HandleId writing = open(node, O_WRONLY | O_TRUNC)->handle;
    ASSERT_TRUE(write(writing, 0, "second"));
    store.put_object("p/f", "of another mount");
    store.release(Operation::kGet);
    static_cast<void>(answered.get_future().get());
    EXPECT_EQ(lookup("f")->node, node);
    EXPECT_TRUE(rename("f", "g"));
    EXPECT_TRUE(close(writing));
    EXPECT_EQ(store.content("p/g"), "second");
}

}  // namespace
}  // namespace ckptfs::fs
