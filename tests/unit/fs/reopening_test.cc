// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <optional>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

// The kernel sends RELEASE behind the answer to close(2), and may send the next open before it.
class Reopened : public FileSystemTest {
protected:
    void reopen() {
        fs->open(node, O_RDWR, Caller{kProcess, 0, 0},
                 [this](Result<OpenedFile> result) { opened = std::move(result); });
    }
    [[nodiscard]] std::size_t waiting(int milliseconds) const { return timer.waiting(Milliseconds(milliseconds)); }

    const Result<CreatedFile> first = create("f");
    const NodeId node = first->entry.node;
    std::optional<Result<OpenedFile>> opened;
};

TEST_F(Reopened, IsReadAndChangedThoughItsReleaseComesLater) {
    ASSERT_TRUE(write(first->opened.handle, 0, "whole"));
    ASSERT_TRUE(flush(first->opened.handle));
    reopen();
    EXPECT_FALSE(opened);
    timer.run(Milliseconds(1));
    EXPECT_FALSE(opened);
    ASSERT_TRUE(release(first->opened.handle));
    timer.run(Milliseconds(2));
    ASSERT_TRUE(opened && *opened);
    EXPECT_EQ(*read((*opened)->handle), "whole");
    EXPECT_TRUE(write((*opened)->handle, 0, "W"));
    EXPECT_TRUE(close((*opened)->handle));
    EXPECT_EQ(store.content("p/f"), "Whole");
}

TEST_F(Reopened, IsTruncatedByNameThoughItsReleaseComesLater) {
    ASSERT_TRUE(write(first->opened.handle, 0, "whole"));
    ASSERT_TRUE(flush(first->opened.handle));
    AttributeChange change;
    change.size = 3;
    const Result<Attributes> cut = answer<Attributes>([&](auto reply) {
        fs->setattr(node, std::nullopt, change, reply);
        EXPECT_EQ(waiting(1), 1U);
        EXPECT_TRUE(release(first->opened.handle));
        timer.run(Milliseconds(1));
    });
    EXPECT_TRUE(cut);
    EXPECT_EQ(store.content("p/f"), "who");
}

TEST_F(Reopened, KeepsItsInodeWhereItIsWrittenAnewAndItsReleaseComesLater) {
    ASSERT_TRUE(write(first->opened.handle, 0, "whole"));
    ASSERT_TRUE(flush(first->opened.handle));
    const auto truncate = [this] {
        opened.reset();
        fs->open(node, O_WRONLY | O_TRUNC, Caller{kProcess, 0, 0},
                 [this](Result<OpenedFile> result) { opened = std::move(result); });
    };
    truncate();
    EXPECT_FALSE(opened);
    ASSERT_TRUE(release(first->opened.handle));
    timer.run(Milliseconds(1));
    ASSERT_TRUE(opened && *opened);
    ASSERT_TRUE(write((*opened)->handle, 0, "anew"));
    ASSERT_TRUE(flush((*opened)->handle));
    const HandleId held = (*opened)->handle;
    // It is not waited for for long.
    truncate();
    for (const int delay : {1, 2, 4}) {
        EXPECT_FALSE(opened);
        timer.run(Milliseconds(delay));
    }
    ASSERT_TRUE(opened);
    EXPECT_EQ(errno_of(*opened), ESTALE);
    EXPECT_TRUE(release(held));
}

TEST_F(Reopened, DoesNotShareTheFailureOfWhatWasClosed) {
    store.put_object("p/f", "before");
    ASSERT_TRUE(write(first->opened.handle, 0, "lost"));
    store.inject({Operation::kPut, "p/f", store_error(EACCES, "AccessDenied", 403)});
    EXPECT_EQ(errno_of(flush(first->opened.handle)), EIO);
    reopen();
    EXPECT_FALSE(opened);
    static_cast<void>(release(first->opened.handle));
    timer.run(Milliseconds(1));
    ASSERT_TRUE(opened);
    // The name holds another version than the one that failed.
    EXPECT_EQ(errno_of(*opened), ESTALE);
    EXPECT_EQ(lookup("f")->attributes.size, 6U);
}

TEST_F(Reopened, DoesNotWaitForLongWhereItIsNotReleased) {
    ASSERT_TRUE(write(first->opened.handle, 0, "saved"));
    ASSERT_TRUE(fsync(first->opened.handle));
    reopen();
    for (int delay = 1; delay <= 64; delay *= 2) {
        EXPECT_FALSE(opened);
        EXPECT_EQ(waiting(delay), 1U);
        timer.run(Milliseconds(delay));
    }
    ASSERT_TRUE(opened && *opened);
    EXPECT_TRUE(close((*opened)->handle));
    EXPECT_TRUE(close(first->opened.handle));
}

TEST_F(Reopened, DoesNotWaitWhileItIsWritten) {
    ASSERT_TRUE(write(first->opened.handle, 0, "not saved"));
    reopen();
    ASSERT_TRUE(opened && *opened);
    EXPECT_TRUE(close((*opened)->handle));
    EXPECT_TRUE(close(first->opened.handle));
    EXPECT_EQ(store.content("p/f"), "not saved");
}

TEST_F(Reopened, IsKnownUntilItsCreateIsAnswered) {
    ASSERT_TRUE(write(first->opened.handle, 0, "whole"));
    ASSERT_TRUE(flush(first->opened.handle));
    std::optional<Result<CreatedFile>> created;
    fs->create_file(kRootNode, "f", O_RDWR | O_CREAT, Caller{kProcess, 0, 0},
                    [&](Result<CreatedFile> result) { created = std::move(result); });
    EXPECT_FALSE(created);
    ASSERT_TRUE(release(first->opened.handle));
    fs->forget(node, 1);
    timer.run(Milliseconds(1));
    ASSERT_TRUE(created && *created);
    EXPECT_EQ((*created)->entry.node, node);
    EXPECT_EQ(*read((*created)->opened.handle), "whole");
    EXPECT_TRUE(close((*created)->opened.handle));
}

// A mapping has outlived its descriptor, and ends while the file is truncated: its RELEASE is not the last one then.
TEST_F(FileSystemTest, ATruncationByNameThatIsTheLastDecidesAboutAMappingAsItsReleaseWould) {
    for (const bool is_killed : {false, true}) {
        const Result<CreatedFile> file = create("f", O_RDWR);
        const HandleId handle = file->opened.handle;
        ASSERT_TRUE(write(handle, 0, "before") && flush(handle));
        ASSERT_TRUE(write(handle, 0, "after, mapped", true));
        processes.killed = is_killed ? kProcess : 0;
        std::promise<void> released;
        staging->post([until = released.get_future().share()] { until.wait(); });
        AttributeChange change;
        change.size = 5;
        const Result<Attributes> cut = answer<Attributes>([&](auto reply) {
            fs->setattr(file->entry.node, std::nullopt, change, reply);
            EXPECT_TRUE(release(handle));
            released.set_value();
        });
        EXPECT_EQ(errno_of(cut), is_killed ? EIO : 0);
        EXPECT_EQ(store.content("p/f"), is_killed ? "before" : "after");
        EXPECT_EQ(fs->uploads().size(), 0U);
        processes.killed = 0;
        ASSERT_TRUE(lookup("f") && unlink("f"));
    }
}

// The kernel may believe the size of what was given up, and would read too little, or zeros.
TEST_F(FileSystemTest, WhoOpensWhatWasGivenUpAtAnotherSizeIsToLookAgain) {
    for (const std::string text : {"", "longer than it was"}) {
        for (const int flags : {O_RDONLY, O_RDWR}) {
            store.put_object("p/" + text + std::to_string(flags), "whole");
            const std::string name = text + std::to_string(flags);
            const NodeId node = lookup(name)->node;
            const HandleId writer = open(node, O_WRONLY | O_TRUNC)->handle;
            ASSERT_TRUE(text.empty() || write(writer, 0, text));
            processes.killed = kProcess;
            static_cast<void>(close(writer));
            processes.killed = 0;
            EXPECT_EQ(errno_of(open(node, flags)), ESTALE);
            const Result<OpenedFile> opened = open(lookup(name)->node, flags);
            ASSERT_TRUE(opened) << opened.error().message;
            EXPECT_EQ(opened->direct_io, flags == O_RDWR);
            EXPECT_EQ(read(opened->handle).value(), "whole");
            ASSERT_TRUE(close(opened->handle));
        }
    }
}

// The kernel truncates the inode by which the open succeeds, also under those who read it through the page cache.
class TruncatedByAStaleName : public FileSystemTest {
protected:
    // The kernel may still lead to the inode of a version that has lost its name.
    TruncatedByAStaleName() {
        store.put_object("p/f", "one");
        stale = lookup("f")->node;
        EXPECT_TRUE(open(stale, O_RDONLY));
        EXPECT_EQ(errno_of(open(stale, O_WRONLY | O_TRUNC)), ESTALE);
        const HandleId writer = open(lookup("f")->node, O_WRONLY | O_TRUNC)->handle;
        EXPECT_TRUE(write(writer, 0, "second") && close(writer));
    }
    void truncate(NodeId node) {
        const Result<OpenedFile> opened = open(node, O_WRONLY | O_TRUNC);
        ASSERT_TRUE(opened) << opened.error().message;
        ASSERT_TRUE(write(opened->handle, 0, "third one"));
        ASSERT_TRUE(close(opened->handle));
        EXPECT_EQ(store.content("p/f"), "third one");
    }

    NodeId stale = 0;
};

TEST_F(TruncatedByAStaleName, LeavesTheInodeToItsReaders) {
    const NodeId second = lookup("f")->node;
    const Result<OpenedFile> reader = open(second, O_RDONLY);
    EXPECT_FALSE(reader->direct_io);
    EXPECT_EQ(errno_of(open(stale, O_WRONLY | O_TRUNC)), ESTALE);
    const NodeId found = lookup("f")->node;
    EXPECT_NE(found, second);
    truncate(found);
}

TEST_F(TruncatedByAStaleName, IsNotReadThroughThePageCacheMeanwhile) {
    EXPECT_EQ(errno_of(open(stale, O_WRONLY | O_TRUNC)), ESTALE);
    const NodeId found = lookup("f")->node;
    const Result<OpenedFile> reader = answer<OpenedFile>([&](auto reply) {
        fs->open(found, O_RDONLY, Caller{kProcess + 1, 0, 0}, reply);
    });
    EXPECT_TRUE(reader->direct_io);
    EXPECT_EQ(*read(reader->handle), "second");
    truncate(found);
}

TEST_F(TruncatedByAStaleName, TheInodeByWhichAnotherVersionIsWrittenIsNotReadThroughThePageCache) {
    const auto open_by = [this](pid_t thread, NodeId node) {
        return answer<OpenedFile>([&](auto reply) { fs->open(node, O_RDONLY, Caller{thread, 0, 0}, reply); });
    };
    EXPECT_EQ(errno_of(open(stale, O_WRONLY | O_TRUNC)), ESTALE);
    const NodeId found = lookup("f")->node;
    EXPECT_EQ(errno_of(open_by(kProcess + 1, stale)), ESTALE);
    EXPECT_TRUE(open_by(kProcess + 2, found));
    const Result<OpenedFile> writer = open(found, O_WRONLY | O_TRUNC);
    ASSERT_TRUE(writer && write(writer->handle, 0, "third one, and half"));
    const Result<OpenedFile> reader = open_by(kProcess + 1, found);
    ASSERT_TRUE(reader) << reader.error().message;
    EXPECT_TRUE(reader->direct_io);
    EXPECT_EQ(*read(reader->handle), "second");
    ASSERT_TRUE(close(writer->handle));
}

TEST_F(FileSystemTest, WhoTruncatesWhatWasRenamedOverSucceedsAtItsSecondTry) {
    const NodeId stale = save("f", "first");
    save("g", "second");
    ASSERT_TRUE(rename("g", "f"));
    const HandleId reader = open(lookup("f")->node, O_RDONLY)->handle;
    EXPECT_EQ(*read(reader), "second");
    EXPECT_EQ(errno_of(open(stale, O_WRONLY | O_TRUNC)), ESTALE);
    const Result<OpenedFile> writer = open(lookup("f")->node, O_WRONLY | O_TRUNC);
    ASSERT_TRUE(writer) << writer.error().message;
    ASSERT_TRUE(write(writer->handle, 0, "third") && close(writer->handle));
    EXPECT_EQ(store.content("p/f"), "third");
    ASSERT_TRUE(close(reader));
}

// A reader in between, whose pages the truncation would empty, reads past the page cache.
TEST_F(FileSystemTest, WhoReadsWhatWasRenamedOverDoesNotStopOneThatTruncatesIt) {
    const NodeId stale = save("f", "first");
    save("g", "second");
    ASSERT_TRUE(rename("g", "f"));
    EXPECT_EQ(errno_of(open(stale, O_WRONLY | O_TRUNC)), ESTALE);
    const Result<OpenedFile> reader = answer<OpenedFile>([&](auto reply) {
        fs->open(lookup("f")->node, O_RDONLY, Caller{kProcess + 1, 0, 0}, reply);
    });
    ASSERT_TRUE(reader);
    EXPECT_TRUE(reader->direct_io);
    const Result<OpenedFile> writer = open(lookup("f")->node, O_WRONLY | O_TRUNC);
    ASSERT_TRUE(writer) << writer.error().message;
    EXPECT_EQ(*read(reader->handle), "second");
    ASSERT_TRUE(close(writer->handle) && close(reader->handle));
}

TEST_F(FileSystemTest, WhoIsToComeBackForANameIsExpectedByWhatIsRenamedToIt) {
    const NodeId first = save("f", "first");
    const HandleId held = open(first, O_RDONLY)->handle;
    EXPECT_EQ(errno_of(open(first, O_WRONLY | O_TRUNC)), ESTALE);
    save("g", "second");
    ASSERT_TRUE(rename("g", "f"));
    const Result<OpenedFile> reader = answer<OpenedFile>([&](auto reply) {
        fs->open(lookup("f")->node, O_RDONLY, Caller{kProcess + 1, 0, 0}, reply);
    });
    ASSERT_TRUE(reader);
    EXPECT_TRUE(reader->direct_io);
    const Result<OpenedFile> writer = open(lookup("f")->node, O_WRONLY | O_TRUNC);
    ASSERT_TRUE(writer) << writer.error().message;
    ASSERT_TRUE(close(writer->handle) && close(reader->handle) && close(held));
}

// Two that truncated one empty file have versions of their own, behind one inode of the kernel's.
TEST_F(FileSystemTest, AnInodeThatSeveralVersionsShareIsNotReadThroughThePageCache) {
    const Result<CreatedFile> first = create("f");
    const HandleId second = open(first->entry.node, O_WRONLY | O_TRUNC)->handle;
    ASSERT_TRUE(write(first->opened.handle, 0, "first") && write(second, 0, "the second"));
    ASSERT_TRUE(close(first->opened.handle));
    const NodeId other = lookup("f")->node;
    EXPECT_NE(other, first->entry.node);
    ASSERT_TRUE(close(second));
    EXPECT_EQ(store.content("p/f"), "the second");
    // Its size was told while it was written by the other inode.
    EXPECT_EQ(errno_of(open(other, O_RDONLY)), ESTALE);
    const Result<OpenedFile> opened = open(lookup("f")->node, O_RDONLY);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_FALSE(opened->direct_io);
    EXPECT_EQ(*read(opened->handle), "the second");
}

// Told to look again, the kernel may find nothing, and create the file.
TEST_F(FileSystemTest, ASecondTryThatBecameACreationIsNotTakenForALaterOpen) {
    const Result<CreatedFile> first = create("f");
    ASSERT_TRUE(write(first->opened.handle, 0, "first"));
    EXPECT_EQ(errno_of(open(first->entry.node, O_RDWR | O_TRUNC)), ESTALE);
    processes.killed = kProcess;
    static_cast<void>(close(first->opened.handle));
    processes.killed = 0;
    clock.advance(Milliseconds(2000));
    EXPECT_EQ(errno_of(lookup("f")), ENOENT);
    const Result<CreatedFile> second = create("f", O_RDWR | O_TRUNC);
    ASSERT_TRUE(second && write(second->opened.handle, 0, "second") && close(second->opened.handle));
    const NodeId node = lookup("f")->node;
    const Result<OpenedFile> reader = open(node, O_RDONLY);
    ASSERT_TRUE(reader && !reader->direct_io);
    EXPECT_EQ(*read(reader->handle), "second");
    EXPECT_EQ(errno_of(open(node, O_RDWR | O_TRUNC)), ESTALE);
    const Result<OpenedFile> third = open(lookup("f")->node, O_RDWR | O_TRUNC);
    ASSERT_TRUE(third) << third.error().message;
    EXPECT_TRUE(write(third->handle, 0, "third") && close(third->handle));
    EXPECT_EQ(store.content("p/f"), "third");
}

// Its name leads to the node of the one that may write it.
TEST_F(FileSystemTest, AReaderKeepsWhatIsRenamedWhileAnotherHasItOpenForChanges) {
    for (const bool with_directory : {false, true}) {
        const NodeId directory = mkdir("d")->node;
        const std::string key = "p/d/f";
        std::string content(std::size_t{24} << 20, 'a');
        // Neither of the end, which comes with the first request, nor read ahead.
        const std::size_t middle = content.size() / 2;
        content[middle] = 'm';
        store.put_object(key, content);
        const NodeId node = lookup("f", directory)->node;
        const HandleId reader = open(node, O_RDONLY)->handle;
        EXPECT_EQ(*read(reader, 0, 5), "aaaaa");
        EXPECT_EQ(errno_of(open(node, O_RDWR)), ESTALE);
        const HandleId writer = open(lookup("f", directory)->node, O_RDWR)->handle;
        ASSERT_TRUE(with_directory ? rename("d", "e") : rename("f", "g", 0, directory));
        EXPECT_FALSE(store.exists(key));
        const Result<std::string> rest = read(reader, middle, 5);
        ASSERT_TRUE(rest) << rest.error().message;
        EXPECT_EQ(*rest, "maaaa");
        ASSERT_TRUE(write(writer, 0, "new"));
        ASSERT_TRUE(close(writer));
        ASSERT_TRUE(close(reader));
        EXPECT_EQ(store.content(with_directory ? "p/e/f" : "p/d/g").substr(0, 5), "newaa");
        ASSERT_TRUE(with_directory ? unlink("f", directory) && rmdir("e") : unlink("g", directory) && rmdir("d"));
    }
}

// Another mount is faster twice.
TEST_F(FileSystemTest, WhoOpensForChangesAtItsSecondTryGetsTheVersionThatIsThere) {
    const NodeId first = save("f", "first");
    store.put_object("p/f", "the second");
    EXPECT_EQ(errno_of(open(first, O_RDWR)), ESTALE);
    const NodeId second = lookup("f")->node;
    store.put_object("p/f", "the third one");
    const Result<OpenedFile> opened = open(second, O_RDWR);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_TRUE(opened->direct_io);
    EXPECT_EQ(getattr(second)->size, 13U);
    EXPECT_EQ(*read(opened->handle), "the third one");
    ASSERT_TRUE(write(opened->handle, 4, "3") && close(opened->handle));
    EXPECT_EQ(store.content("p/f"), "the 3hird one");
}

// Told to look again, the kernel found nothing; what has the name later is another file, and may be replaced, too.
TEST_F(FileSystemTest, WhoFoundNothingTheSecondTimeIsNotServedALaterVersionUnasked) {
    const Result<CreatedFile> failed = create("f");
    ASSERT_TRUE(write(failed->opened.handle, 0, "half"));
    processes.killed = kProcess;
    static_cast<void>(close(failed->opened.handle));
    processes.killed = 0;
    EXPECT_EQ(errno_of(open(failed->entry.node, O_RDONLY)), ESTALE);
    EXPECT_EQ(errno_of(lookup("f")), ENOENT);
    store.put_object("p/f", "one");
    const NodeId node = lookup("f")->node;
    const auto other = answer<OpenedFile>([&](auto reply) {
        fs->open(node, O_RDONLY, Caller{kProcess + 1, 0, 0}, std::move(reply));
    });
    ASSERT_TRUE(other);
    EXPECT_EQ(*read(other->handle), "one");
    store.put_object("p/f", "another");
    EXPECT_EQ(errno_of(open(node, O_RDONLY)), ESTALE);
    EXPECT_EQ(*read(open(lookup("f")->node, O_RDONLY)->handle), "another");
}

// It has read what was not saved yet, which is the file now.
TEST_F(FileSystemTest, WhoHasReadWhatWasSavedSinceGoesOnAsAnyReader) {
    for (const bool renamed : {true, false}) {
        const NodeId node = save("f", "old-text");
        const HandleId writer = open(node, O_RDWR)->handle;
        ASSERT_TRUE(write(writer, 0, "NEW"));
        const HandleId reader = open(node, O_RDONLY)->handle;
        EXPECT_EQ(read(reader).value_or("error"), "NEW-text");
        ASSERT_TRUE(close(writer));
        if (renamed) {
            ASSERT_TRUE(rename("f", "g"));
            EXPECT_EQ(read(reader).value_or("error"), "NEW-text");
        } else {
            EXPECT_EQ(errno_of(open(node, O_WRONLY | O_APPEND)), ESTALE);
            const HandleId appender = open(lookup("f")->node, O_WRONLY | O_APPEND)->handle;
            ASSERT_TRUE(write(appender, 8, "+1"));
            ASSERT_TRUE(close(appender));
            EXPECT_EQ(read(reader).value_or("error"), "NEW-text+1");
        }
        ASSERT_TRUE(close(reader));
        ASSERT_TRUE(unlink(renamed ? "g" : "f"));
    }
}

// Nothing but what is read is fetched: what is kept of the file is copied.
TEST_F(FileSystemTest, AVersionBesideOneThatWasSavedIsRenamedWithIt) {
    const Result<CreatedFile> first = create("f", O_WRONLY | O_TRUNC);
    const HandleId second = open(first->entry.node, O_WRONLY | O_TRUNC)->handle;
    ASSERT_TRUE(write(second, 0, "saved") && write(first->opened.handle, 0, "beside"));
    ASSERT_TRUE(fsync(second));
    EXPECT_EQ(store.content("p/f"), "saved");
    ASSERT_TRUE(rename("f", "g"));
    EXPECT_EQ(store.keys(), std::vector<std::string>{"p/g"});
    EXPECT_EQ(store.content("p/g"), "beside");
}

TEST_F(FileSystemTest, AReadThatIsUnderWayFollowsWhatIsSavedAndRenamed) {
    std::string content(std::size_t{8} << 20, 'a');
    const std::size_t middle = std::size_t{3} << 20;
    content[middle] = 'm';
    store.put_object("p/f", content);
    const NodeId node = lookup("f")->node;
    const HandleId writer = open(node, O_RDWR)->handle;
    ASSERT_TRUE(write(writer, std::size_t{7} << 20, std::string(std::size_t{1} << 20, 'b')));
    const HandleId reader = open(node, O_RDONLY)->handle;
    store.hold(Operation::kGet);
    auto under_way = std::async(std::launch::async, [&] { return read(reader, middle, 5); });
    const bool is_under_way = store.wait_until_held(Operation::kGet, 1);
    const Status closed = close(writer);
    const Status renamed = rename("f", "g");
    store.release(Operation::kGet);
    const Result<std::string> got = under_way.get();
    EXPECT_TRUE(is_under_way);
    EXPECT_TRUE(closed);
    EXPECT_TRUE(renamed);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(*got, "maaaa");
    ASSERT_TRUE(close(reader));
}

TEST_F(FileSystemTest, WhoHasNotReadYetReadsWhatIsSavedOnceChangesHaveFailed) {
    const NodeId node = save("f", "old");
    const HandleId writer = open(node, O_RDWR)->handle;
    ASSERT_TRUE(write(writer, 0, "newer"));
    const HandleId reader = open(node, O_RDONLY)->handle;
    store.inject(Fault{Operation::kPut, "p/f", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    EXPECT_FALSE(fsync(writer));
    EXPECT_EQ(read(reader).value_or("error"), "old");
    static_cast<void>(close(writer));
    EXPECT_EQ(read(reader).value_or("error"), "old");
    ASSERT_TRUE(close(reader));
}

// It has joined the empty file of one that made it with O_EXCL, which is told of by the close of that one.
TEST_F(FileSystemTest, WhoTruncatesAnExclusiveFileReplacesWhatAnotherMountHasSaved) {
    for (const char* name : {"f", "train.log"}) {
        for (const int access : {O_WRONLY, O_RDWR}) {
            const std::string key = std::string("p/") + name;
            const Result<CreatedFile> made = create(name, access | O_EXCL);
            store.put_object(key, "of another mount");
            const Result<OpenedFile> truncated = open(made->entry.node, access | O_TRUNC);
            ASSERT_TRUE(truncated) << truncated.error().message;
            ASSERT_TRUE(write(truncated->handle, 0, "anew"));
            const Status closed = close(truncated->handle);
            EXPECT_TRUE(closed) << name << ": " << closed.error().message;
            EXPECT_EQ(store.content(key), "anew");
            static_cast<void>(close(made->opened.handle));
            clock.advance(Milliseconds(2000));
            ASSERT_TRUE(lookup(name) && unlink(name));
        }
    }
}

}  // namespace
}  // namespace ckptfs::fs
