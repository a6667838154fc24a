// SPDX-License-Identifier: Apache-2.0
// What open descriptors read of a file that is changed, saved, removed or replaced beside them.
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

class OpenReadersTest : public FileSystemTest {
protected:
    Status set_size(NodeId node, HandleId handle, std::uint64_t size) {
        AttributeChange change;
        change.size = size;
        const Result<Attributes> changed =
            answer<Attributes>([&](auto reply) { fs->setattr(node, handle, change, reply); });
        return changed ? Status() : failure(changed.error());
    }
    Result<OpenedFile> open_by(pid_t thread, NodeId node, int flags) {
        return answer<OpenedFile>([&](auto reply) { fs->open(node, flags, Caller{thread, 0, 0}, reply); });
    }
    // Who has read from the page cache alone, as one does here, is known by nothing else.
    NodeId open_beside_a_killed_open() {
        store.put_object("p/f", "one");
        const NodeId node = lookup("f")->node;
        const HandleId before = open(node, O_RDONLY)->handle;
        EXPECT_EQ(*read(before), "one");
        EXPECT_TRUE(close(before));
        EXPECT_TRUE(open(node, O_RDONLY)->keep_cache);
        fs->disown(open(node, O_RDONLY)->handle);
        return node;
    }
    // The kernel does not drop it in time.
    Status fsync_beside_a_locked_page(HandleId handle) {
        return answer<void>([&](auto reply) {
            fs->fsync(handle, reply);
            wait_for_threads();
            timer.run(Milliseconds(1000));
        });
    }
    HandleId open_again(const std::string& name, int flags) {
        EXPECT_EQ(errno_of(open(lookup(name)->node, flags)), ESTALE);
        return open(lookup(name)->node, flags)->handle;
    }
};

TEST_F(OpenReadersTest, ADescriptorForBothReadsWhatWasSavedAfterItsFirstRead) {
    store.put_object("p/log", "aaaaaaa");
    const NodeId node = lookup("log")->node;
    const HandleId appending = open(node, O_WRONLY | O_APPEND)->handle;
    const HandleId both = open_beside(node, O_RDWR)->handle;
    EXPECT_EQ(*read(both, 0, 7), "aaaaaaa");
    ASSERT_TRUE(set_size(lookup("log")->node, both, 0));
    ASSERT_TRUE(write(appending, 0, "bbb") && fsync(appending));
    EXPECT_EQ(*read(both, 0, 7), "bbb");
}

TEST_F(OpenReadersTest, WhoReadTheFileAsEmptyFollowsWhatIsAppendedLater) {
    store.put_object("p/log", "");
    const NodeId node = lookup("log")->node;
    const HandleId reader = open(node, O_RDONLY)->handle;
    EXPECT_EQ(*read(reader), "");
    const HandleId first = open(node, O_WRONLY | O_TRUNC)->handle;
    ASSERT_TRUE(write(first, 0, "a\n") && close(first));
    EXPECT_EQ(*read(reader), "a\n");
    const HandleId second = open_again("log", O_WRONLY | O_APPEND);
    ASSERT_TRUE(write(second, 2, "b\n") && close(second));
    EXPECT_EQ(*read(reader), "a\nb\n");
}

TEST_F(OpenReadersTest, TheSizeThatAFileHasGrownToIsToldOnceAndNoNoticeComesBehindIt) {
    store.put_object("p/log", "one ");
    const NodeId node = lookup("log")->node;
    const HandleId reader = open(node, O_RDONLY)->handle;
    EXPECT_EQ(*read(reader), "one ");
    EXPECT_GT(getattr(node)->valid_for.count(), 0);
    const HandleId writer = open_again("log", O_WRONLY | O_APPEND);
    std::vector<Attributes> meanwhile;
    kernel_cache.before_done = [&] { meanwhile.push_back(*getattr(node)); };
    ASSERT_TRUE(write(writer, 4, "two") && close(writer));
    ASSERT_EQ(meanwhile.size(), 1U);
    EXPECT_EQ(meanwhile[0].size, 4U);
    EXPECT_EQ(meanwhile[0].valid_for.count(), 0);
    EXPECT_EQ(getattr(node)->size, 7U);
    EXPECT_TRUE(kernel_cache.attributes.empty());
}

// Else its notice would come behind the size that it shows, and pages that were read before would end in zeros.
TEST_F(OpenReadersTest, WhatIsAddedWhileTheKernelForgetsIsShownByItsOwnNotice) {
    store.put_object("p/log", "one ");
    const NodeId node = lookup("log")->node;
    const HandleId reader = open(node, O_RDONLY)->handle;
    EXPECT_EQ(*read(reader), "one ");
    const HandleId writer = open_again("log", O_WRONLY | O_APPEND);
    kernel_cache.is_held = true;
    ASSERT_TRUE(write(writer, 4, "two ") && fsync_beside_a_locked_page(writer));
    ASSERT_TRUE(write(writer, 8, "three") && fsync_beside_a_locked_page(writer));
    kernel_cache.deliver();
    EXPECT_EQ(getattr(node)->size, 8U);
    EXPECT_EQ(getattr(node)->valid_for.count(), 0);
    kernel_cache.deliver();
    EXPECT_EQ(getattr(node)->size, 13U);
    EXPECT_GT(getattr(node)->valid_for.count(), 0);
    kernel_cache.is_held = false;
}

// It may be mapped, and a mapping of a descriptor with direct_io fills pages of the inode, too.
TEST_F(OpenReadersTest, WhatIsSavedBesideAReaderOfTheVersionBeforeIsReadByAnotherInode) {
    store.put_object("p/f", "one");
    const NodeId node = lookup("f")->node;
    const HandleId writer = open(node, O_WRONLY | O_TRUNC)->handle;
    ASSERT_TRUE(write(writer, 0, "second"));
    const Result<OpenedFile> reader = open(node, O_RDONLY);
    EXPECT_EQ(*read(reader->handle), "one");
    ASSERT_TRUE(close(writer));
    EXPECT_EQ(std::count(kernel_cache.inodes.begin(), kernel_cache.inodes.end(), node), 1);
    const HandleId next = open_again("f", O_RDONLY);
    EXPECT_NE(lookup("f")->node, node);
    EXPECT_EQ(*read(next), "second");
}

TEST_F(OpenReadersTest, PagesOfAnOpenThatTheKernelNeverSawAreNotKept) {
    store.put_object("p/f", "one");
    const NodeId node = lookup("f")->node;
    const Result<OpenedFile> killed = open(node, O_RDONLY);
    EXPECT_FALSE(killed->keep_cache);
    fs->disown(killed->handle);
    const Result<OpenedFile> next = open(node, O_RDONLY);
    EXPECT_FALSE(next->keep_cache);
    EXPECT_EQ(*read(next->handle), "one");
    EXPECT_TRUE(open(node, O_RDONLY)->keep_cache);
}

// The answer to the second could overtake that to the first.
TEST_F(OpenReadersTest, PagesAreNotKeptBeforeOneThatDropsOthersHasRead) {
    store.put_object("p/f", "one");
    const NodeId node = lookup("f")->node;
    const Result<OpenedFile> drops = open(node, O_RDONLY);
    EXPECT_FALSE(drops->keep_cache);
    EXPECT_FALSE(open(node, O_RDONLY)->keep_cache);
    EXPECT_EQ(*read(drops->handle), "one");
    EXPECT_TRUE(open(node, O_RDONLY)->keep_cache);
    store.put_object("p/f", "two");
    EXPECT_EQ(errno_of(open(node, O_RDONLY)), ESTALE);
    EXPECT_FALSE(open(lookup("f")->node, O_RDONLY)->keep_cache);
}

// What they read after a commit is in pages, too.
TEST_F(OpenReadersTest, PagesAreDroppedAtEachCommitWhileAReaderIsThere) {
    store.put_object("p/f", "one");
    const NodeId node = lookup("f")->node;
    const HandleId reader = open(node, O_RDONLY)->handle;
    const HandleId writer = open(node, O_RDWR)->handle;
    for (const char* const text : {"two", "six", "ten"}) {
        ASSERT_TRUE(write(writer, 0, text));
        EXPECT_EQ(*read(reader), text);
        kernel_cache.inodes.clear();
        ASSERT_TRUE(fsync(writer));
        EXPECT_EQ(kernel_cache.inodes, std::vector<std::uint64_t>{node}) << text;
    }
}

// As an MD5 of them.
TEST_F(OpenReadersTest, PagesAreDroppedWhereTheSameBytesAreSavedAgain) {
    store.make_etags_of_content();
    store.put_object("p/f", "one");
    const NodeId node = lookup("f")->node;
    const HandleId before = open(node, O_RDONLY)->handle;
    EXPECT_EQ(*read(before), "one");
    EXPECT_TRUE(close(before));
    const HandleId writer = open(node, O_RDWR)->handle;
    ASSERT_TRUE(write(writer, 0, "two"));
    ASSERT_TRUE(write(writer, 0, "one"));
    kernel_cache.inodes.clear();
    ASSERT_TRUE(fsync(writer));
    EXPECT_EQ(kernel_cache.inodes, std::vector<std::uint64_t>{node});
    ASSERT_TRUE(fsync(writer));
    EXPECT_EQ(kernel_cache.inodes.size(), 1U) << "nothing was changed";
    EXPECT_TRUE(close(writer));
    EXPECT_FALSE(open(node, O_RDONLY)->keep_cache);
}

// What was read ahead of the rest stays.
TEST_F(OpenReadersTest, WhatIsAppendedDropsThePagesFromTheEndBeforeItOn) {
    store.put_object("p/log", std::string(5000, 'a'));
    const NodeId node = lookup("log")->node;
    EXPECT_EQ(read(open(node, O_RDONLY)->handle)->size(), 5000U);
    const HandleId writer = open_again("log", O_WRONLY | O_APPEND);
    ASSERT_TRUE(write(writer, 5000, "more") && fsync(writer));
    EXPECT_EQ(kernel_cache.inodes.back(), node);
    EXPECT_EQ(kernel_cache.last_from, 5000U);
}

// The name that a writer was told to look up again is that of a file by now that others have read.
TEST_F(OpenReadersTest, AWriterThatComesToARenamedFileLeavesItsReadersTheirPages) {
    store.put_object("p/a", "one");
    store.put_object("p/b", "other");
    const HandleId reader = open(lookup("a")->node, O_RDONLY)->handle;
    EXPECT_EQ(*read(reader), "one");
    EXPECT_EQ(*read(open(lookup("b")->node, O_RDONLY)->handle), "other");
    EXPECT_EQ(errno_of(open(lookup("b")->node, O_RDWR)), ESTALE);
    ASSERT_TRUE(rename("a", "b"));
    const NodeId node = lookup("b")->node;
    const Result<OpenedFile> writer = open(node, O_RDWR);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(write(writer->handle, 0, "two"));
    EXPECT_TRUE(close(writer->handle));
    EXPECT_EQ(*read(open_again("b", O_RDONLY)), "two");
    EXPECT_EQ(*read(reader), "one");
}

// Between its open and its first write, the kernel believes a size that a reader's pages do not have.
TEST_F(OpenReadersTest, WhoOpensWhileAWriterDoesUsesNoPages) {
    store.put_object("p/f", "one");
    const NodeId node = lookup("f")->node;
    store.hold(Operation::kHead);
    auto writer = std::async(std::launch::async, [&] { return open(node, O_WRONLY | O_APPEND); });
    ASSERT_TRUE(store.wait_until_held(Operation::kHead, 1));
    EXPECT_TRUE(open(node, O_RDONLY)->direct_io);
    store.release(Operation::kHead);
    static_cast<void>(writer.get());
}

TEST_F(OpenReadersTest, WhatIsSavedIsAnsweredWhenThePagesOfTheVersionBeforeAreGone) {
    store.put_object("p/f", "one");
    const NodeId node = lookup("f")->node;
    EXPECT_EQ(*read(open(node, O_RDONLY)->handle), "one");
    const HandleId writer = open_again("f", O_WRONLY | O_APPEND);
    ASSERT_TRUE(write(writer, 3, "two"));
    kernel_cache.is_held = true;
    auto saved = std::make_shared<std::promise<Status>>();
    std::future<Status> answered = saved->get_future();
    fs->fsync(writer, [saved](Status status) { saved->set_value(std::move(status)); });
    wait_for_threads();
    EXPECT_EQ(store.content("p/f"), "onetwo");
    EXPECT_EQ(answered.wait_for(kForAWhile), std::future_status::timeout);
    kernel_cache.deliver();
    EXPECT_EQ(answered.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    EXPECT_TRUE(answered.get());
    kernel_cache.is_held = false;
}

TEST_F(OpenReadersTest, AnOpenThatTheKernelNeverSawLeavesAReaderOfThePageCacheItsVersion) {
    const NodeId node = open_beside_a_killed_open();
    EXPECT_EQ(errno_of(open(node, O_RDWR)), ESTALE);
}

TEST_F(OpenReadersTest, AnOpenAfterOneThatTheKernelNeverSawLeavesAReaderItsVersion) {
    const NodeId node = open_beside_a_killed_open();
    EXPECT_FALSE(open(node, O_RDONLY)->keep_cache);
    EXPECT_EQ(errno_of(open(node, O_RDWR)), ESTALE);
}

TEST_F(OpenReadersTest, PagesOfTheVersionBeforeAreDroppedAlsoOnceItsReaderIsGone) {
    store.put_object("p/f", "one");
    const NodeId node = lookup("f")->node;
    const HandleId writer = open(node, O_WRONLY | O_TRUNC)->handle;
    ASSERT_TRUE(write(writer, 0, "second"));
    const HandleId reader = open(node, O_RDONLY)->handle;
    EXPECT_EQ(*read(reader), "one");
    ASSERT_TRUE(close(reader));
    ASSERT_TRUE(close(writer));
    EXPECT_EQ(std::count(kernel_cache.inodes.begin(), kernel_cache.inodes.end(), node), 1);
}

TEST_F(OpenReadersTest, AnOpenByANodeThatHasLostItsNameAsksForWhatIsThereNow) {
    store.put_object("p/f", "one");
    const NodeId first = lookup("f")->node;
    const HandleId reader = open(first, O_RDONLY)->handle;
    EXPECT_EQ(*read(reader), "one");
    store.put_object("p/f", "second");
    EXPECT_EQ(errno_of(open(first, O_RDONLY)), ESTALE);
    clock.advance(Milliseconds(1));
    EXPECT_EQ(*read(open(lookup("f")->node, O_RDONLY)->handle), "second");
    // Another mount saves it. The kernel still has the name at the first node, and looks it up again once.
    store.put_object("p/f", "the third");
    clock.advance(Milliseconds(1));
    EXPECT_EQ(errno_of(open(first, O_RDONLY)), ESTALE);
    const Result<Entry> again = lookup("f");
    EXPECT_EQ(again->attributes.size, 9U);
    EXPECT_EQ(*read(open(again->node, O_RDONLY)->handle), "the third");
}

TEST_F(OpenReadersTest, WhatManyOpensFindAtOnceIsNotAskedForAgain) {
    store.put_object("p/f", "one");
    const NodeId first = lookup("f")->node;
    const HandleId reader = open(first, O_RDONLY)->handle;
    EXPECT_EQ(*read(reader), "one");
    store.put_object("p/f", "second");
    store.hold_answers(Operation::kHead);
    std::map<pid_t, Result<OpenedFile>> opened;
    for (const pid_t process : {kProcess, kProcess + 1}) {
        clock.advance(Milliseconds(1));
        fs->open(first, O_RDONLY, Caller{process, 0, 0},
                 [&, process](Result<OpenedFile> file) { opened.emplace(process, std::move(file)); });
    }
    store.release(Operation::kHead);
    ASSERT_EQ(opened.size(), 2U);
    for (const auto& [process, file] : opened) {
        EXPECT_EQ(errno_of(file), ESTALE);
    }
    store.reset_calls();
    EXPECT_EQ(lookup("f")->attributes.size, 6U);
    EXPECT_EQ(store.calls(), 0);
}

TEST_F(OpenReadersTest, AnOlderAnswerHidesNoCommitFromAnOpenThatLooksAgain) {
    store.put_object("p/f", "one");
    const NodeId first = lookup("f")->node;
    const HandleId reader = open(first, O_RDONLY)->handle;
    EXPECT_EQ(*read(reader), "one");
    store.put_object("p/f", "second");
    EXPECT_EQ(errno_of(open(first, O_RDONLY)), ESTALE);
    const NodeId second = lookup("f")->node;
    EXPECT_TRUE(close(open(second, O_RDONLY)->handle));
    clock.advance(Milliseconds(2000));
    store.hold_answers(Operation::kHead);
    std::optional<Result<Entry>> looked_up;
    fs->lookup(kRootNode, "f", {}, [&](Result<Entry> entry) { looked_up = std::move(entry); });
    clock.advance(Milliseconds(1));
    const HandleId writer = open(second, O_WRONLY | O_TRUNC)->handle;
    EXPECT_TRUE(write(writer, 0, "the third"));
    EXPECT_TRUE(close(writer));
    clock.advance(Milliseconds(1));
    EXPECT_EQ(errno_of(open(first, O_RDONLY)), ESTALE);
    store.release(Operation::kHead);
    ASSERT_TRUE(looked_up && *looked_up);
    EXPECT_EQ((*looked_up)->attributes.size, 9U);
}

TEST_F(OpenReadersTest, AnAnswerIsAsOldAsItsQuestion) {
    store.put_object("p/f", "one");
    store.hold_answers(Operation::kHead);
    std::optional<Result<Entry>> earlier;
    std::optional<Result<Entry>> later;
    fs->lookup(kRootNode, "f", {}, [&](Result<Entry> entry) { earlier = std::move(entry); });
    clock.advance(Milliseconds(1));
    store.put_object("p/f", "second");
    fs->lookup(kRootNode, "f", {}, [&](Result<Entry> entry) { later = std::move(entry); });
    clock.advance(Milliseconds(1));
    store.release(Operation::kHead);
    ASSERT_TRUE(earlier && later);
    EXPECT_EQ((*earlier)->attributes.size, 3U);
    EXPECT_EQ((*later)->attributes.size, 6U);
}

TEST_F(OpenReadersTest, AVersionThatIsThereAgainIsReadByWhoOpensItAgain) {
    store.make_etags_of_content();
    const std::string content(std::size_t{24} << 20, 'a');
    store.put_object("p/f", content);
    const NodeId node = lookup("f")->node;
    const HandleId first = open(node, O_RDONLY)->handle;
    EXPECT_EQ(*read(first, 0, 1000), std::string(1000, 'a'));
    store.put_object("p/f", "other");
    EXPECT_EQ(errno_of(read(first, 20 << 20, 1000)), ESTALE);
    store.put_object("p/f", content);
    const Result<OpenedFile> again = open(node, O_RDONLY);
    const Result<std::string> bytes = read(again->handle, 20 << 20, 1000);
    ASSERT_TRUE(bytes);
    EXPECT_EQ(*bytes, std::string(1000, 'a'));
}

TEST_F(OpenReadersTest, AVersionOfAnotherMountIsNotTakenForOneThatHasGrown) {
    store.put_object("p/log", "one ");
    const NodeId first = lookup("log")->node;
    const HandleId reader = open(first, O_RDONLY)->handle;
    EXPECT_EQ(*read(reader), "one ");
    EXPECT_EQ(errno_of(open(first, O_WRONLY | O_APPEND)), ESTALE);
    const NodeId second = lookup("log")->node;
    EXPECT_EQ(errno_of(open_by(kProcess + 1, first, O_RDONLY)), ESTALE);
    const HandleId writer = open(second, O_WRONLY | O_APPEND)->handle;
    ASSERT_TRUE(write(writer, 4, "two") && close(writer));
    store.put_object("p/log", "of another mount");
    ASSERT_TRUE(open_by(kProcess + 1, second, O_RDONLY));
    EXPECT_EQ(errno_of(read(reader)), ESTALE);
}

// The kernel learns the end by its answer, but not from one that a notice has overtaken: then it would fill up with
// zeros to the size of what was given up.
TEST_F(OpenReadersTest, WhatWasGivenUpIsDroppedAfterAReadAcrossTheEnd) {
    const std::string content(3 << 20, 'x');
    store.put_object("p/f", content);
    const NodeId node = lookup("f")->node;
    const HandleId writer = open(node, O_RDWR)->handle;
    const HandleId reader = open(node, O_RDONLY)->handle;
    ASSERT_TRUE(write(writer, content.size(), " and more"));
    kernel_cache.is_held = true;
    processes.killed = kProcess;
    static_cast<void>(flush(writer));
    processes.killed = 0;
    // It is given up behind the answer.
    wait_for_threads();
    ASSERT_EQ(kernel_cache.inodes, std::vector<NodeId>{node});
    store.hold(Operation::kGet);
    std::promise<std::string> bytes;
    fs->read(reader, 0, content.size() + 1, [&](Result<Payload> data) { bytes.set_value(data->to_string()); });
    kernel_cache.deliver();
    EXPECT_EQ(kernel_cache.inodes, std::vector<NodeId>{});
    store.release(Operation::kGet);
    EXPECT_EQ(bytes.get_future().get(), content);
    wait_for_threads();
    EXPECT_EQ(kernel_cache.inodes, std::vector<NodeId>{node});
    kernel_cache.deliver();
    EXPECT_EQ(kernel_cache.inodes, std::vector<NodeId>{node});
}

TEST_F(OpenReadersTest, ANewFileThatLostItsNameUnsavedDoesNotLookEmpty) {
    for (const bool is_killed : {false, true}) {
        SCOPED_TRACE(is_killed);
        const Result<CreatedFile> file = create("f");
        const HandleId reader = open(file->entry.node, O_RDONLY)->handle;
        ASSERT_TRUE(write(file->opened.handle, 0, "content"));
        if (is_killed) {
            EXPECT_EQ(errno_of(open(file->entry.node, O_WRONLY | O_TRUNC)), ESTALE);
        } else {
            ASSERT_TRUE(unlink("f"));
        }
        processes.killed = is_killed ? kProcess : 0;
        static_cast<void>(close(file->opened.handle));
        processes.killed = 0;
        EXPECT_EQ(errno_of(read(reader)), ESTALE);
        static_cast<void>(close(reader));
        static_cast<void>(unlink("f"));
    }
}

TEST_F(OpenReadersTest, WhatIsAppendedByAnEarlierInodeIsDroppedFromThePageCache) {
    const Result<CreatedFile> earlier = create("log", O_RDWR | O_APPEND);
    ASSERT_TRUE(write(earlier->opened.handle, 0, "old"));
    const HandleId later = open_again("log", O_WRONLY | O_TRUNC);
    ASSERT_TRUE(write(later, 0, "new") && close(later));
    const NodeId node = lookup("log")->node;
    const Result<OpenedFile> reader = open(node, O_RDONLY);
    ASSERT_TRUE(reader && !reader->direct_io);
    for (const char* added : {"x", "yz"}) {
        kernel_cache.inodes.clear();
        ASSERT_TRUE(write(earlier->opened.handle, 0, added));
        EXPECT_TRUE(std::count(kernel_cache.inodes.begin(), kernel_cache.inodes.end(), node) > 0);
        kernel_cache.inodes.clear();
        ASSERT_TRUE(fsync(earlier->opened.handle));
        EXPECT_TRUE(std::count(kernel_cache.inodes.begin(), kernel_cache.inodes.end(), node) > 0);
    }
}

TEST_F(OpenReadersTest, WhoHasReadNothingDoesNotReadTheVersionBeforeTheOneThatWasRemoved) {
    store.put_object("p/f", "AAAAAAAA");
    const NodeId node = lookup("f")->node;
    const HandleId reader = open(node, O_RDONLY)->handle;
    const HandleId writer = open(node, O_RDWR)->handle;
    ASSERT_TRUE(write(writer, 0, "BBB") && set_size(node, writer, 3) && close(writer));
    ASSERT_TRUE(unlink("f"));
    EXPECT_EQ(errno_of(read(reader)), ESTALE);
}

TEST_F(OpenReadersTest, AReadThatIsUnderWayGoesOnInTheFirstChangeBesideIt) {
    store.put_object("p/f", std::string(std::size_t{8} << 20, 'a'));
    const NodeId node = lookup("f")->node;
    const HandleId writer = open(node, O_RDWR)->handle;
    const HandleId reader = open(node, O_RDONLY)->handle;
    ASSERT_EQ(*read(reader, std::size_t{7} << 20, 1), "a");
    store.hold(Operation::kGet);
    auto under_way = std::async(std::launch::async, [&] { return read(reader, std::size_t{3} << 20, 5); });
    const bool is_under_way = store.wait_until_held(Operation::kGet, 1);
    const Status changed = set_size(node, writer, 0);
    const Status saved = changed && write(writer, 0, "new") ? fsync(writer) : failure(EIO, "not written");
    store.release(Operation::kGet);
    const Result<std::string> got = under_way.get();
    EXPECT_TRUE(is_under_way && saved);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(*got, "");
}

TEST_F(OpenReadersTest, ANewFileThatFailedIsNotOneThatIsStillWritten) {
    const Result<CreatedFile> file = create("f", O_RDWR);
    ASSERT_TRUE(write(file->opened.handle, 0, "content"));
    const HandleId reader = open(file->entry.node, O_RDONLY)->handle;
    store.inject({Operation::kPut, "p/f", store_error(EACCES, "AccessDenied", 403), 0, 1, false});
    EXPECT_FALSE(fsync(file->opened.handle));
    EXPECT_EQ(errno_of(read(reader)), ESTALE);
}

}  // namespace
}  // namespace ckptfs::fs
