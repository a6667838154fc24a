// SPDX-License-Identifier: Apache-2.0
// O_TRUNC of a file that is open and empty: it keeps its inode, and the truncation is one more all the same.
#include <fcntl.h>

#include <future>
#include <optional>
#include <string>

#include "file_system_fixture.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

constexpr pid_t kOther = 300;

// With the writer of a checkpoint, of a file that is read and changed, and of a log.
class TruncatedAgain : public FileSystemTest, public ::testing::WithParamInterface<int> {
protected:
    void TearDown() override {
        store.release(Operation::kPut);
        store.release(Operation::kHead);
    }
    HandleId make() { return create("f", GetParam() | O_TRUNC)->opened.handle; }
    HandleId truncate_again(pid_t process = kProcess) {
        const NodeId node = lookup("f")->node;
        return answer<OpenedFile>([&](auto reply) {
                   fs->open(node, GetParam() | O_TRUNC, Caller{process, 0, 0}, reply);
               })
            ->handle;
    }
    // Of the process kOther.
    void kill_while_others_hold_it(HandleId handle) {
        processes.killed = kOther;
        processes.others_write = true;
        EXPECT_TRUE(flush(handle, kOther));
        EXPECT_TRUE(release(handle));
        processes.killed = 0;
        processes.others_write = false;
    }
};

TEST_P(TruncatedAgain, ReplacesWhatAnotherMountHasSavedSinceTheCommit) {
    const HandleId first = make();
    const HandleId second = truncate_again();
    EXPECT_TRUE(close(second));
    store.put_object("p/f", "of another mount");
    EXPECT_TRUE(close(truncate_again()));
    EXPECT_EQ(store.content("p/f"), "");
    EXPECT_TRUE(close(first));
    EXPECT_EQ(store.content("p/f"), "");
}

// Its close was answered, and nothing else tells that it is the last.
TEST_P(TruncatedAgain, IsSavedWhereOneThatTruncatedItIsNotSeenToHaveClosedIt) {
    processes.hidden = kProcess;
    const HandleId first = make();
    kill_while_others_hold_it(truncate_again(kOther));
    EXPECT_TRUE(close(first));
    EXPECT_TRUE(store.exists("p/f")) << "closed after the other was killed";
    ASSERT_TRUE(unlink("f"));
    const HandleId early = make();
    const HandleId late = truncate_again(kOther);
    EXPECT_TRUE(close(early));
    processes.killed = kOther;
    EXPECT_TRUE(flush(late, kOther));
    EXPECT_TRUE(release(late));
    EXPECT_TRUE(store.exists("p/f")) << "and before";
}

// An fsync with nothing to save does not ask whether the bucket still has what was saved.
TEST_P(TruncatedAgain, ReplacesItAfterASyncThatHadNothingToSave) {
    const HandleId first = make();
    EXPECT_TRUE(close(truncate_again()));
    store.put_object("p/f", "of another mount");
    const HandleId second = truncate_again();
    EXPECT_TRUE(fsync(second));
    EXPECT_TRUE(close(second));
    EXPECT_EQ(store.content("p/f"), "");
    EXPECT_TRUE(close(first));
}

TEST_P(TruncatedAgain, MakesAnewWhatAnotherMountHasRemovedSinceTheCommit) {
    const HandleId first = make();
    EXPECT_TRUE(close(truncate_again()));
    ASSERT_TRUE(answer<void>([&](auto done) { store.remove({"p/f", {}}, done); }));
    EXPECT_TRUE(close(truncate_again()));
    EXPECT_EQ(store.keys(), std::vector<std::string>{"p/f"});
    EXPECT_TRUE(close(first));
}

TEST_P(TruncatedAgain, ReplacesWhatAnotherMountHasSavedDuringTheCommit) {
    const HandleId first = make();
    store.hold_answers(Operation::kPut);
    auto closed = std::async(std::launch::async, [&] { return flush(first); });
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 1));
    store.put_object("p/f", "of another mount");
    const HandleId second = truncate_again();
    auto truncated = std::async(std::launch::async, [&] { return close(second); });
    EXPECT_EQ(truncated.wait_for(kForAWhile), std::future_status::timeout);
    store.release(Operation::kPut);
    EXPECT_TRUE(closed.get());
    EXPECT_TRUE(truncated.get());
    EXPECT_EQ(store.content("p/f"), "");
    EXPECT_TRUE(release(first));
}

// As filelock does, many times a second, while another process has the lock.
TEST_P(TruncatedAgain, WritesNothingWhereTheFileIsAsItWasSaved) {
    const HandleId first = make();
    EXPECT_TRUE(close(truncate_again()));
    store.reset_calls();
    for (int turn = 0; turn < 3; ++turn) {
        EXPECT_TRUE(close(truncate_again()));
    }
    EXPECT_EQ(store.calls(Operation::kPut), 0);
    EXPECT_EQ(store.calls(Operation::kHead), 3);
    store.reset_calls();
    EXPECT_TRUE(close(first));
    EXPECT_EQ(store.calls(), 0) << "it truncated before the others saved it";
}

TEST_P(TruncatedAgain, FailsWhereTheStoreDoesNotAnswer) {
    const HandleId first = make();
    EXPECT_TRUE(close(truncate_again()));
    Error down;
    down.errno_value = EIO;
    store.inject({Operation::kHead, "p/f", down});
    store.inject({Operation::kPut, "p/f", down});
    const HandleId second = truncate_again();
    EXPECT_EQ(errno_of(close(second)), EIO);
    store.clear_faults();
    static_cast<void>(close(first));
}

TEST_P(TruncatedAgain, IsNotPublishedForAProcessThatIsKilled) {
    const HandleId first = make();
    EXPECT_TRUE(close(truncate_again()));
    store.put_object("p/f", "of another mount");
    const HandleId second = truncate_again(kOther);
    processes.killed = kOther;
    EXPECT_TRUE(flush(second, kOther));
    EXPECT_TRUE(release(second));
    processes.killed = 0;
    static_cast<void>(close(first));
    EXPECT_EQ(store.content("p/f"), "of another mount");
}

// As one does that waits for a lock.
TEST_P(TruncatedAgain, HarmsNoneThatHoldTheFileWhereItsProcessIsKilled) {
    const HandleId first = make();
    EXPECT_TRUE(close(truncate_again()));
    const NodeId node = lookup("f")->node;
    store.reset_calls();
    const HandleId second = truncate_again(kOther);
    kill_while_others_hold_it(second);
    EXPECT_TRUE(fsync(first));
    const HandleId third = truncate_again();
    EXPECT_EQ(lookup("f")->node, node);
    EXPECT_TRUE(close(third));
    EXPECT_TRUE(close(first));
    EXPECT_EQ(store.calls(Operation::kPut), 0);
}

TEST_P(TruncatedAgain, TakesTheFileOverFromOneThatWasKilledBeforeItWroteAnything) {
    store.put_object("p/f", "earlier");
    const HandleId first = truncate_again(kOther);
    const NodeId node = lookup("f")->node;
    const HandleId holder = answer<OpenedFile>([&](auto reply) {
                                fs->open(node, O_RDWR, Caller{kProcess, 0, 0}, reply);
                            })->handle;
    kill_while_others_hold_it(first);
    EXPECT_EQ(errno_of(fsync(holder)), EIO);
    const HandleId second = truncate_again();
    EXPECT_EQ(lookup("f")->node, node);
    EXPECT_TRUE(close(second));
    EXPECT_EQ(store.content("p/f"), "");
    EXPECT_TRUE(close(holder));
}

TEST_P(TruncatedAgain, IsPublishedForOneOfTwoWhereTheOtherIsKilled) {
    store.put_object("p/f", "earlier");
    const HandleId first = truncate_again(kOther);
    const HandleId second = truncate_again();
    kill_while_others_hold_it(first);
    EXPECT_EQ(store.content("p/f"), "earlier");
    EXPECT_TRUE(close(second));
    EXPECT_EQ(store.content("p/f"), "");
}

TEST_P(TruncatedAgain, IsNotPublishedWhereBothAreKilled) {
    store.put_object("p/f", "earlier");
    const HandleId first = truncate_again(kOther);
    const HandleId second = truncate_again();
    processes.others_write = true;
    processes.killed = kOther;
    EXPECT_TRUE(flush(first, kOther));
    EXPECT_TRUE(release(first));
    processes.others_write = false;
    processes.killed = kProcess;
    EXPECT_TRUE(flush(second));
    EXPECT_TRUE(release(second));
    EXPECT_EQ(store.content("p/f"), "earlier");
}

TEST_P(TruncatedAgain, IsLeftToWhoWritesMeanwhile) {
    const HandleId first = make();
    EXPECT_TRUE(close(truncate_again()));
    store.put_object("p/f", "of another mount");
    store.hold(Operation::kHead);
    const HandleId second = truncate_again();
    auto truncated = std::async(std::launch::async, [&] { return close(second); });
    ASSERT_TRUE(store.wait_until_held(Operation::kHead, 1));
    ASSERT_TRUE(write(first, 0, "half"));
    store.release(Operation::kHead);
    EXPECT_TRUE(truncated.get());
    EXPECT_EQ(store.content("p/f"), "of another mount");
    EXPECT_TRUE(write(first, 4, " and half"));
    EXPECT_TRUE(close(first));
    EXPECT_EQ(store.content("p/f"), "half and half");
}

// Their closes publish only what they have written.
TEST_P(TruncatedAgain, IsPublishedForThoseThatAreNotSeenOnceTheyLetItGo) {
    constexpr pid_t kUnseen = 0;
    store.put_object("p/f", "earlier");
    const HandleId first = truncate_again(kUnseen);
    EXPECT_TRUE(close(truncate_again()));
    store.put_object("p/f", "of another mount");
    const HandleId second = truncate_again(kUnseen);
    EXPECT_TRUE(flush(second, kUnseen));
    EXPECT_TRUE(release(second));
    EXPECT_EQ(store.content("p/f"), "of another mount") << "the other may write yet";
    EXPECT_TRUE(flush(first, kUnseen));
    EXPECT_TRUE(release(first));
    EXPECT_EQ(store.content("p/f"), "");
}

INSTANTIATE_TEST_SUITE_P(OfEachWriter, TruncatedAgain, ::testing::Values(O_WRONLY, O_RDWR, O_WRONLY | O_APPEND));

// A file that was written, is empty again, and all of that is saved.
class EmptyAgain : public FileSystemTest {
protected:
    void SetUp() override {
        FileSystemTest::SetUp();
        ASSERT_TRUE(write(first->opened.handle, 0, "whole"));
        AttributeChange change;
        change.size = 0;
        ASSERT_TRUE(answer<Attributes>([&](auto reply) { fs->setattr(node, first->opened.handle, change, reply); }));
        ASSERT_TRUE(fsync(first->opened.handle) && flush(first->opened.handle));
    }

    const Result<CreatedFile> first = create("f", O_RDWR);
    const NodeId node = first->entry.node;
};

TEST_F(EmptyAgain, IsWrittenByWhoTruncatesItThoughItsReleaseComesLater) {
    std::optional<Result<OpenedFile>> opened;
    fs->open(node, O_RDWR | O_TRUNC, Caller{kProcess, 0, 0},
             [&opened](Result<OpenedFile> result) { opened = std::move(result); });
    EXPECT_FALSE(opened);
    ASSERT_TRUE(release(first->opened.handle));
    timer.run(Milliseconds(1));
    ASSERT_TRUE(opened && *opened);
    ASSERT_TRUE(write((*opened)->handle, 0, "abc"));
    EXPECT_EQ(getattr(node)->size, 3U);
    EXPECT_TRUE(close((*opened)->handle));
    EXPECT_EQ(store.content("p/f"), "abc");
}

// A program that appends where fstat(2) says would write over what it has written.
TEST_F(EmptyAgain, ShowsWhoTruncatesItTheVersionThatItWritesWhereTheReleaseIsLate) {
    const Result<OpenedFile> opened = open_beside(node, O_RDWR | O_TRUNC);
    ASSERT_TRUE(opened);
    EXPECT_EQ(getattr(node, kProcess)->size, 0U);
    ASSERT_TRUE(write(opened->handle, 0, "abc"));
    EXPECT_EQ(getattr(node, kProcess)->size, 3U);
    EXPECT_EQ(getattr(node, kProcess)->inode, first->entry.attributes.inode);
    // Who else has it open has the version that is empty, as far as is known.
    EXPECT_EQ(getattr(node, kProcess + 1)->size, 0U);
    ASSERT_TRUE(release(first->opened.handle));
    EXPECT_EQ(getattr(node, kProcess)->size, 3U);
    EXPECT_EQ(getattr(node)->size, 3U);
    EXPECT_TRUE(close(opened->handle));
    EXPECT_EQ(store.content("p/f"), "abc");
}

// A lock file with the process that has the lock.
class Locked : public FileSystemTest {
protected:
    Locked() { EXPECT_TRUE(write(first->opened.handle, 0, "first")); }
    [[nodiscard]] Result<OpenedFile> truncate_by(pid_t process) { return truncate_by(process, node); }
    [[nodiscard]] Result<OpenedFile> truncate_by(pid_t process, NodeId which) {
        return answer<OpenedFile>([&](auto reply) {
            fs->open(which, O_WRONLY | O_TRUNC, Caller{process, 0, 0}, reply);
        });
    }
    void expect_one_file() {
        EXPECT_EQ(lookup("lock")->node, node);
        EXPECT_EQ(kernel_cache.entries, std::vector<std::string>());
    }
    const Result<CreatedFile> first = create("lock", O_WRONLY | O_TRUNC);
    const NodeId node = first->entry.node;
};

TEST_F(Locked, IsOneFileThatIsWrittenInTurns) {
    processes.locks_by = kProcess;
    const Result<OpenedFile> second = truncate_by(kOther);
    ASSERT_TRUE(second);
    EXPECT_EQ(getattr(node)->size, 5U);
    // Handed over, it belongs to no process for a moment.
    processes.locks_by.reset();
    ASSERT_TRUE(close(first->opened.handle));
    EXPECT_EQ(store.content("p/lock"), "first");
    const Result<OpenedFile> third = truncate_by(kOther + 1);
    ASSERT_TRUE(third);
    processes.locks_by = kOther;
    ASSERT_TRUE(write(second->handle, 0, "2nd"));
    ASSERT_TRUE(close(second->handle));
    EXPECT_EQ(store.content("p/lock"), "2nd");
    processes.locks_by = kOther + 1;
    ASSERT_TRUE(write(third->handle, 0, "3"));
    ASSERT_TRUE(close(third->handle));
    EXPECT_EQ(store.content("p/lock"), "3");
    expect_one_file();
}

TEST_F(Locked, IsNotMixedWithWhatIsWrittenWithoutTheLock) {
    processes.locks_by = kProcess;
    const Result<OpenedFile> second = truncate_by(kOther);
    ASSERT_TRUE(second);
    ASSERT_TRUE(write(second->handle, 0, "2nd"));
    ASSERT_TRUE(close(first->opened.handle));
    EXPECT_EQ(store.content("p/lock"), "first");
    ASSERT_TRUE(close(second->handle));
    EXPECT_EQ(store.content("p/lock"), "2nd");
}

// It has given the lock up, and not closed the file.
TEST_F(Locked, IsNotLostWithOneThatHadTheLockBefore) {
    processes.locks_by = kProcess;
    const Result<OpenedFile> second = truncate_by(kOther);
    ASSERT_TRUE(second);
    processes.locks_by = kOther;
    ASSERT_TRUE(answer<void>([&](auto reply) {
        Buffer buffer = *pool->try_take(MemoryUse::kReceive);
        std::memcpy(buffer.data(), "2nd", 3);
        const ByteSpan data(buffer.data(), 3);
        fs->write(second->handle, 0, WriteData{std::move(buffer), data}, Caller{kOther, 0, 0}, reply);
    }));
    processes.killed = kProcess;
    processes.others_write = true;
    EXPECT_TRUE(flush(first->opened.handle) && release(first->opened.handle));
    EXPECT_TRUE(flush(second->handle, kOther) && release(second->handle));
    EXPECT_EQ(store.content("p/lock"), "2nd");
}

TEST_F(Locked, IsNotMixedWithAnAttemptOfTheSameProcess) {
    processes.locks_by = kProcess;
    const Result<OpenedFile> again = truncate_by(kProcess);
    ASSERT_TRUE(again);
    ASSERT_TRUE(write(again->handle, 0, "again"));
    ASSERT_TRUE(close(again->handle));
    EXPECT_EQ(errno_of(write(first->opened.handle, 5, " and what was in a buffer")), ESTALE);
    static_cast<void>(close(first->opened.handle));
    EXPECT_EQ(store.content("p/lock"), "again");
}

TEST_F(Locked, IsNotMixedWithWhatItsHolderHasAppended) {
    ASSERT_TRUE(close(first->opened.handle));
    const Result<OpenedFile> appends = open(node, O_WRONLY | O_APPEND);
    ASSERT_TRUE(write(appends->handle, 0, " holder"));
    processes.locks_by = kProcess;
    const Result<OpenedFile> second = truncate_by(kOther);
    const Result<OpenedFile> third = truncate_by(kOther + 1);
    ASSERT_TRUE(second && third);
    ASSERT_TRUE(close(appends->handle));
    EXPECT_EQ(store.content("p/lock"), "first holder");
    processes.locks_by = kOther;
    ASSERT_TRUE(write(second->handle, 0, "2nd"));
    ASSERT_TRUE(close(second->handle));
    EXPECT_EQ(store.content("p/lock"), "2nd");
    expect_one_file();
    // Without the lock.
    ASSERT_TRUE(write(third->handle, 0, "3"));
    ASSERT_TRUE(close(third->handle));
    EXPECT_EQ(store.content("p/lock"), "3");
}

// Its earlier descriptor is closed, and not released.
TEST_F(Locked, IsWrittenByWhoComesAgainBeforeItsReleaseDoes) {
    processes.locks_by = kProcess;
    const Result<OpenedFile> second = truncate_by(kOther);
    ASSERT_TRUE(second);
    ASSERT_TRUE(flush(first->opened.handle));
    const Result<OpenedFile> again = truncate_by(kProcess);
    ASSERT_TRUE(again);
    processes.locks_by = kOther;
    ASSERT_TRUE(write(second->handle, 0, "2nd"));
    ASSERT_TRUE(close(second->handle));
    ASSERT_TRUE(release(first->opened.handle));
    processes.locks_by = kProcess;
    ASSERT_TRUE(write(again->handle, 0, "3"));
    ASSERT_TRUE(close(again->handle));
    EXPECT_EQ(store.content("p/lock"), "3");
    expect_one_file();
}

TEST_F(Locked, OutlivesTheDeathOfOneThatWaits) {
    processes.locks_by = kProcess;
    const Result<OpenedFile> second = truncate_by(kOther);
    ASSERT_TRUE(second);
    processes.killed = kOther;
    processes.others_write = true;
    EXPECT_TRUE(flush(second->handle, kOther));
    EXPECT_TRUE(release(second->handle));
    processes.killed = 0;
    const Result<OpenedFile> third = truncate_by(kOther + 1);
    ASSERT_TRUE(third);
    ASSERT_TRUE(close(first->opened.handle));
    EXPECT_EQ(store.content("p/lock"), "first");
    ASSERT_TRUE(close(third->handle));
    EXPECT_EQ(store.content("p/lock"), "first");
    expect_one_file();
}

TEST_F(Locked, IsNoLockFileOnceAllHaveClosedIt) {
    processes.locks_by = kProcess;
    const Result<OpenedFile> second = truncate_by(kOther);
    ASSERT_TRUE(second);
    ASSERT_TRUE(close(second->handle));
    ASSERT_TRUE(close(first->opened.handle));
    processes.locks_by.reset();
    const Result<OpenedFile> appends = open(node, O_WRONLY | O_APPEND);
    ASSERT_TRUE(write(appends->handle, 0, " more"));
    EXPECT_EQ(errno_of(truncate_by(kOther)), ESTALE);
    ASSERT_TRUE(close(appends->handle));
}

TEST_F(Locked, IsOneFileWhereItIsLockedAndWrittenWhileTheLocksAreRead) {
    processes.while_reading_locks = [&] {
        processes.locks_by = kProcess;
        EXPECT_TRUE(write(first->opened.handle, 5, " holder"));
    };
    const Result<OpenedFile> second = truncate_by(kOther);
    ASSERT_TRUE(second);
    ASSERT_TRUE(close(first->opened.handle));
    EXPECT_EQ(store.content("p/lock"), "first holder");
    ASSERT_TRUE(close(second->handle));
    expect_one_file();
}

// One that opens what had the name before does not take the name from a file that is locked by now.
TEST_F(Locked, KeepsItsNameFromOneThatHasLookedItUpBefore) {
    EXPECT_EQ(errno_of(truncate_by(kOther)), ESTALE);
    const NodeId fresh = lookup("lock")->node;
    const Result<OpenedFile> holder = truncate_by(kOther, fresh);
    ASSERT_TRUE(holder);
    ASSERT_TRUE(write(holder->handle, 0, "holder"));
    processes.locks_by = kOther;
    EXPECT_EQ(errno_of(truncate_by(kOther + 1)), ESTALE);
    EXPECT_EQ(lookup("lock")->node, fresh);
    const Result<OpenedFile> waits = truncate_by(kOther + 1, fresh);
    ASSERT_TRUE(waits);
    ASSERT_TRUE(close(waits->handle));
    ASSERT_TRUE(close(first->opened.handle));
    ASSERT_TRUE(close(holder->handle));
    EXPECT_EQ(store.content("p/lock"), "holder");
}

TEST_F(Locked, KeepsItsNameFromOneThatComesBackToWhatHadItBefore) {
    EXPECT_EQ(errno_of(truncate_by(kOther)), ESTALE);
    const NodeId fresh = lookup("lock")->node;
    const Result<OpenedFile> other = truncate_by(kOther, fresh);
    ASSERT_TRUE(write(other->handle, 0, "other"));
    EXPECT_EQ(errno_of(truncate_by(kOther + 1)), ESTALE);
    EXPECT_EQ(errno_of(truncate_by(kOther + 2, fresh)), ESTALE);
    const NodeId last = lookup("lock")->node;
    const Result<OpenedFile> holder = truncate_by(kOther + 2, last);
    ASSERT_TRUE(holder);
    ASSERT_TRUE(write(holder->handle, 0, "holder"));
    processes.locks_by = kOther + 2;
    EXPECT_EQ(errno_of(truncate_by(kOther + 1, fresh)), ESTALE);
    EXPECT_EQ(lookup("lock")->node, last);
    for (const HandleId handle : {first->opened.handle, other->handle, holder->handle}) {
        ASSERT_TRUE(close(handle));
    }
    EXPECT_EQ(store.content("p/lock"), "holder");
}

TEST_F(Locked, HasANewVersionWhereItIsLarge) {
    ASSERT_TRUE(write(first->opened.handle, 5, std::string(1 << 20, 'x')));
    processes.locks_by = kProcess;
    EXPECT_EQ(errno_of(truncate_by(kOther)), ESTALE);
    ASSERT_TRUE(close(first->opened.handle));
}

}  // namespace
}  // namespace ckptfs::fs
