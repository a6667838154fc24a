// SPDX-License-Identifier: Apache-2.0
// The real FUSE layer, driven without a mount.
#include <fcntl.h>

#include <functional>

#include "support/manual_clock.h"
#include "unit/fuse/session_fixture.h"

namespace ckptfs {
namespace {

TEST_F(SessionTest, AgreesOnWhatTheFileSystemNeeds) {
    init_ = false;
    serve(1);
    const fuse_init_out reply = kernel_.init();
    EXPECT_EQ(reply.max_write, 1U << 20);
    EXPECT_EQ(reply.max_pages, 256);
    EXPECT_EQ(reply.max_background, 256);
    EXPECT_EQ(reply.congestion_threshold, 192);
    for (const int wanted : {FUSE_ASYNC_READ, FUSE_PARALLEL_DIROPS, FUSE_ATOMIC_O_TRUNC, FUSE_DO_READDIRPLUS,
                             FUSE_EXPLICIT_INVAL_DATA, FUSE_HANDLE_KILLPRIV_V2, FUSE_INIT_EXT}) {
        EXPECT_NE(reply.flags & static_cast<std::uint32_t>(wanted), 0U) << "flag " << wanted;
    }
    for (const int unwanted : {FUSE_WRITEBACK_CACHE, FUSE_AUTO_INVAL_DATA, FUSE_POSIX_LOCKS, FUSE_FLOCK_LOCKS,
                               FUSE_EXPORT_SUPPORT, FUSE_READDIRPLUS_AUTO, FUSE_ASYNC_DIO}) {
        EXPECT_EQ(reply.flags & static_cast<std::uint32_t>(unwanted), 0U) << "flag " << unwanted;
    }
    EXPECT_TRUE(testing::eventually([this] { return ready_.load(); }));
}

TEST_F(SessionTest, AllowsSharedMappingsWithDirectIoWhereTheKernelOffersIt) {
    init_ = false;
    serve(1);
    EXPECT_EQ(kernel_.init().flags2, 1U << 4);
    EXPECT_TRUE(session_->kernel_cache().direct_io_allows_mmap());
}

TEST_F(SessionTest, ReadsFilesPastTheDaemonWhereThatIsWanted) {
    init_ = false;
    passes_through_ = true;
    serve(1);
    EXPECT_FALSE(session_->passthrough().is_possible());
    const fuse_init_out reply = kernel_.init();
    EXPECT_EQ(reply.flags2, (1U << 4) | (1U << 5));
    // max_stack_depth.
    EXPECT_EQ(reply.unused[0], 1U);
    EXPECT_TRUE(session_->passthrough().is_possible());
    // A socket takes no files; that is asked once.
    EXPECT_EQ(session_->passthrough().offer(0), nullptr);
    EXPECT_FALSE(session_->passthrough().is_possible());
}

TEST_F(SessionTest, AnOpenNamesTheFileThatTheKernelReads) {
    fs_.pass_through(7);
    serve(1);
    std::uint64_t handle = 0;
    const fuse_entry_out entry = kernel_.create("f", &handle);
    const fuse_open_in in{};
    const auto answer = kernel_.call(FUSE_OPEN, entry.nodeid, raw(in)).as<fuse_open_out>();
    EXPECT_NE(answer.fh, handle);
    EXPECT_EQ(answer.open_flags, (1U << 7) | FOPEN_NOFLUSH);
    EXPECT_EQ(answer.padding, 7U);
}

TEST_F(SessionTest, AsksForNothingThatTheKernelDidNotOffer) {
    init_ = false;
    passes_through_ = true;
    serve(1);
    EXPECT_EQ(kernel_.init(FUSE_ASYNC_READ | FUSE_INIT_EXT, 0).flags2, 0U);
    EXPECT_FALSE(session_->passthrough().is_possible());
    EXPECT_FALSE(session_->kernel_cache().direct_io_allows_mmap());
}

TEST_F(SessionTest, ExtendedAttributesAreReadAndNeverSet) {
    serve(1);
    const auto ask = [&](std::uint32_t opcode, std::string_view name, std::uint32_t room) {
        fuse_getxattr_in in{};
        in.size = room;
        return kernel_.call(opcode, FUSE_ROOT_ID, raw(in) + (name.empty() ? "" : name_argument(name)));
    };
    EXPECT_EQ(ask(FUSE_GETXATTR, "user.name", 0).as<fuse_getxattr_out>().size, 5U);
    EXPECT_EQ(ask(FUSE_GETXATTR, "user.name", 5).body, "value");
    EXPECT_EQ(ask(FUSE_GETXATTR, "user.name", 4).error, ERANGE);
    EXPECT_EQ(ask(FUSE_GETXATTR, "security.capability", 0).error, ENODATA);
    EXPECT_EQ(ask(FUSE_LISTXATTR, "", 0).as<fuse_getxattr_out>().size, 17U);
    EXPECT_EQ(ask(FUSE_LISTXATTR, "", 100).body, std::string("user.name\0user.b\0", 17));
    EXPECT_EQ(ask(FUSE_LISTXATTR, "", 16).error, ERANGE);
    fuse_setxattr_in in{};
    in.size = 1;
    const std::string set(reinterpret_cast<const char*>(&in), FUSE_COMPAT_SETXATTR_IN_SIZE);
    EXPECT_EQ(kernel_.call(FUSE_SETXATTR, FUSE_ROOT_ID, set + name_argument("user.name") + "x").error, EOPNOTSUPP);
    EXPECT_EQ(kernel_.call(FUSE_REMOVEXATTR, FUSE_ROOT_ID, name_argument("user.name")).error, EOPNOTSUPP);
}

TEST_F(SessionTest, WritesReadsAndListsAFile) {
    serve(2);
    std::uint64_t handle = 0;
    const fuse_entry_out entry = kernel_.create("model.pt", &handle);
    EXPECT_EQ(entry.attr.blksize, 1U << 20);
    EXPECT_EQ(entry.attr.nlink, 1U);

    kernel_.send_write(entry.nodeid, handle, 0, "tensor");
    EXPECT_EQ(kernel_.receive().value().as<fuse_write_out>().size, 6U);
    EXPECT_EQ(fs_.contents("model.pt"), "tensor");

    kernel_.send_read(entry.nodeid, handle, 2, 100);
    EXPECT_EQ(kernel_.receive().value().body, "nsor");

    fuse_setattr_in resize{};
    resize.valid = FATTR_SIZE | FATTR_MTIME;
    resize.size = 3;
    resize.mtime = 12;
    resize.mtimensec = 500;
    const auto attributes = kernel_.call(FUSE_SETATTR, entry.nodeid, raw(resize)).as<fuse_attr_out>();
    EXPECT_EQ(attributes.attr.size, 3U);
    EXPECT_EQ(attributes.attr.mtime, 12U);
    EXPECT_EQ(attributes.attr.mtimensec, 500U);
    EXPECT_EQ(attributes.attr.blocks, 1U);

    const auto opened = kernel_.call(FUSE_OPENDIR, FUSE_ROOT_ID, raw(fuse_open_in{})).as<fuse_open_out>();
    fuse_read_in read{};
    read.fh = opened.fh;
    read.size = 4096;
    const std::uint64_t before = fs_.lookups();
    const FuseAnswer list = kernel_.call(FUSE_READDIRPLUS, FUSE_ROOT_ID, raw(read));
    EXPECT_NE(list.body.find("model.pt"), std::string::npos);
    EXPECT_EQ(fs_.lookups(), before + 1);
}

TEST_F(SessionTest, TheDataOfAWriteBeginsOnAPageOfItsBuffer) {
    serve(1);
    std::uint64_t handle = 0;
    const fuse_entry_out entry = kernel_.create("model.pt", &handle);
    kernel_.send_write(entry.nodeid, handle, 0, "tensor");
    EXPECT_EQ(kernel_.receive().value().as<fuse_write_out>().size, 6U);
    EXPECT_EQ(fs_.data_offset_of_write(), std::ptrdiff_t{4096});
}

TEST_F(SessionTest, TakesBackTheLookupsOfEntriesThatDoNotFit) {
    for (int i = 0; i < 20; ++i) {
        fs_.add_file(std::string(200, 'n') + std::to_string(i), "");
    }
    serve(1);
    const auto opened = kernel_.call(FUSE_OPENDIR, FUSE_ROOT_ID, raw(fuse_open_in{})).as<fuse_open_out>();
    fuse_read_in read{};
    read.fh = opened.fh;
    read.size = 2048;
    const FuseAnswer list = kernel_.call(FUSE_READDIRPLUS, FUSE_ROOT_ID, raw(read));
    std::uint64_t sent = 0;
    for (std::size_t at = list.body.find("nnn"); at != std::string::npos; at = list.body.find("nnn", at + 200)) {
        ++sent;
    }
    EXPECT_GT(sent, 0U);
    EXPECT_TRUE(testing::eventually([&] { return fs_.lookups() == sent; })) << fs_.lookups();
}

TEST_F(SessionTest, AParkedWriteDoesNotKeepTheWorker) {
    serve(1);
    std::uint64_t handle = 0;
    const fuse_entry_out entry = kernel_.create("f", &handle);
    fs_.hold("write");
    const std::uint64_t write = kernel_.send_write(entry.nodeid, handle, 0, "parked");
    EXPECT_EQ(kernel_.call(FUSE_GETATTR, entry.nodeid, raw(fuse_getattr_in{})).error, 0);
    fs_.let_go();
    expect_error(0, write);
}

TEST_F(SessionTest, StopsWhileWorkersWaitForRequests) {
    serve(4);
    session_->stop();
    EXPECT_FALSE(ended_);
}

TEST_F(SessionTest, SaysWhenItIsUnmounted) {
    serve(4);
    kernel_.close();
    EXPECT_TRUE(testing::eventually([this] { return ended_.load(); }));
}

TEST_F(SessionTest, AHarmlessSignalIsNoAnswer) {
    serve(1);
    std::uint64_t handle = 0;
    const fuse_entry_out entry = kernel_.create("f", &handle);
    const std::uint64_t flush = send_held("flush", FUSE_FLUSH, entry.nodeid, raw(fuse_flush_in{handle, 0, 0, 0}));
    kernel_.interrupt(flush);
    ASSERT_TRUE(testing::eventually([this] { return processes_.asked() > 0; }));
    fs_.let_go();
    expect_error(0, flush);
}

TEST_F(SessionTest, ADyingCallerIsLetGo) {
    serve(1);
    std::uint64_t handle = 0;
    const fuse_entry_out entry = kernel_.create("f", &handle);
    const std::uint64_t flush = send_held("flush", FUSE_FLUSH, entry.nodeid, raw(fuse_flush_in{handle, 0, 0, 0}));
    processes_.kill(100);
    kernel_.interrupt(flush);
    expect_error(EINTR, flush);
    // The late answer must not be sent.
    fs_.let_go();
    EXPECT_EQ(kernel_.call(FUSE_STATFS, FUSE_ROOT_ID).error, 0);
}

TEST_F(SessionTest, AKillAfterAHarmlessSignalIsSeen) {
    serve(1);
    std::uint64_t handle = 0;
    const fuse_entry_out entry = kernel_.create("f", &handle);
    const std::uint64_t flush = send_held("flush", FUSE_FLUSH, entry.nodeid, raw(fuse_flush_in{handle, 0, 0, 0}));
    kernel_.interrupt(flush);
    ASSERT_TRUE(testing::eventually([this] { return processes_.asked() > 0; }));
    processes_.kill(100);
    expect_error(EINTR, flush);
}

TEST_F(SessionTest, AWriterThatAFaultKilledDoesNotWaitForItsClose) {
    serve(1);
    std::uint64_t handle = 0;
    const fuse_entry_out entry = kernel_.create("f", &handle);
    processes_.crash(100);
    const std::uint64_t flush = send_held("flush", FUSE_FLUSH, entry.nodeid, raw(fuse_flush_in{handle, 0, 0, 0}));
    expect_error(EINTR, flush);
    fs_.let_go();
}

TEST_F(SessionTest, AnInterruptThatOvertakesItsRequestIsSeen) {
    serve(1);
    fs_.hold("lookup");
    processes_.kill(100);
    kernel_.interrupt_next();
    const std::uint64_t lookup = kernel_.send(FUSE_LOOKUP, FUSE_ROOT_ID, name_argument("f"));
    expect_error(EINTR, lookup);
    EXPECT_EQ(fs_.held(), 0U);
}

TEST_F(SessionTest, TheFileSystemIsToldOfAKilledWritersCloseBeforeItsRelease) {
    serve(1);
    std::uint64_t handle = 0;
    const fuse_entry_out entry = kernel_.create("f", &handle);
    fs_.hold("flush");
    processes_.kill(100);
    kernel_.interrupt_next();
    kernel_.send(FUSE_FLUSH, entry.nodeid, raw(fuse_flush_in{handle, 0, 0, 0}));
    EXPECT_TRUE(testing::eventually([this] { return fs_.held() == 1; }));
    fs_.let_go();
}

TEST_F(SessionTest, WhatADyingCallerWouldHaveGotIsGivenBack) {
    fs_.add_file("f", "");
    serve(1);
    fuse_create_in in{};
    in.flags = O_WRONLY | O_CREAT;
    const std::uint64_t create = send_held("create", FUSE_CREATE, FUSE_ROOT_ID, raw(in) + name_argument("new"));
    processes_.kill(100);
    kernel_.interrupt(create);
    expect_error(EINTR, create);
    EXPECT_EQ(fs_.open_handles(), 1U);
    fs_.let_go();
    EXPECT_EQ(fs_.open_handles(), 0U);
    EXPECT_EQ(fs_.lookups(), 0U);

    const std::uint64_t lookup = send_held("lookup", FUSE_LOOKUP, FUSE_ROOT_ID, name_argument("f"));
    kernel_.interrupt(lookup);
    expect_error(EINTR, lookup);
    fs_.let_go();
    EXPECT_EQ(fs_.lookups(), 0U);
}

TEST_F(SessionTest, WhatTheKernelNoLongerTakesIsGivenBack) {
    serve(1);
    fuse_create_in in{};
    in.flags = O_WRONLY | O_CREAT;
    send_held("create", FUSE_CREATE, FUSE_ROOT_ID, raw(in) + name_argument("new"));
    kernel_.close();
    fs_.let_go();
    EXPECT_EQ(fs_.open_handles(), 0U);
    EXPECT_EQ(fs_.lookups(), 0U);
}

TEST_F(SessionTest, ErrorsReachTheProgramAndEnosysNever) {
    serve(1);
    Error error;
    error.errno_value = EDQUOT;
    fs_.fail("lookup", error);
    EXPECT_EQ(kernel_.call(FUSE_LOOKUP, FUSE_ROOT_ID, name_argument("f")).error, EDQUOT);
    error.errno_value = ENOSYS;
    fs_.fail("lookup", error);
    EXPECT_EQ(kernel_.call(FUSE_LOOKUP, FUSE_ROOT_ID, name_argument("f")).error, EOPNOTSUPP);
    error.errno_value = 0;
    fs_.fail("lookup", error);
    EXPECT_EQ(kernel_.call(FUSE_LOOKUP, FUSE_ROOT_ID, name_argument("f")).error, EIO);
}

TEST_F(SessionTest, AWriteThatIsToBeSyncedIsAnsweredOnceItIs) {
    serve(1);
    std::uint64_t handle = 0;
    const auto entry = kernel_.create("f", &handle);
    Error error;
    error.errno_value = EDQUOT;
    fs_.fail("fsync", error);
    for (const auto& [flags, expected] :
         {std::pair(O_WRONLY, 0), {O_WRONLY | O_DSYNC, EDQUOT}, {O_WRONLY | O_SYNC, EDQUOT}}) {
        kernel_.send_write(entry.nodeid, handle, 0, "x", flags);
        EXPECT_EQ(kernel_.receive().value().error, expected);
    }
}

TEST_F(SessionTest, RefusesWhatS3CannotHold) {
    serve(1);
    fuse_mknod_in device{};
    device.mode = S_IFCHR | 0600U;
    EXPECT_EQ(kernel_.call(FUSE_MKNOD, FUSE_ROOT_ID, raw(device) + name_argument("device")).error, EPERM);
    EXPECT_EQ(kernel_.call(FUSE_IOCTL, FUSE_ROOT_ID, raw(fuse_ioctl_in{})).error, ENOTTY);
    EXPECT_EQ(kernel_.call(FUSE_FSYNCDIR, FUSE_ROOT_ID, raw(fuse_fsync_in{})).error, 0);
}

TEST_F(SessionTest, MakesSocketsAndFifos) {
    serve(1);
    for (const mode_t type : {mode_t{S_IFSOCK}, mode_t{S_IFIFO}}) {
        fuse_mknod_in special{};
        special.mode = type | 0600U;
        const auto made =
            kernel_.call(FUSE_MKNOD, FUSE_ROOT_ID, raw(special) + name_argument("special" + std::to_string(type)));
        EXPECT_EQ(made.as<fuse_entry_out>().attr.mode & S_IFMT, type);
    }
}

TEST_F(SessionTest, MakesAndReadsSymbolicLinks) {
    serve(1);
    const auto made = kernel_.call(FUSE_SYMLINK, FUSE_ROOT_ID, name_argument("soft") + name_argument("target"));
    const auto entry = made.as<fuse_entry_out>();
    EXPECT_EQ(entry.attr.mode & S_IFMT, mode_t{S_IFLNK});
    EXPECT_EQ(entry.attr.size, 6U);
    EXPECT_EQ(kernel_.call(FUSE_READLINK, entry.nodeid, "").body, "target");
}

TEST_F(SessionTest, LinksAreFilesOfTheirOwn) {
    fs_.add_file("f", "x");
    serve(1);
    const auto file = kernel_.call(FUSE_LOOKUP, FUSE_ROOT_ID, name_argument("f")).as<fuse_entry_out>();
    const auto made = kernel_.call(FUSE_LINK, FUSE_ROOT_ID, raw(fuse_link_in{file.nodeid}) + name_argument("g"));
    const auto link = made.as<fuse_entry_out>();
    EXPECT_NE(link.nodeid, file.nodeid);
    EXPECT_EQ(link.attr.size, 1U);
    EXPECT_EQ(link.attr.nlink, 1U);
    Error error;
    error.errno_value = EPERM;
    fs_.fail("link", error);
    EXPECT_EQ(kernel_.call(FUSE_LINK, FUSE_ROOT_ID, raw(fuse_link_in{file.nodeid}) + name_argument("h")).error, EPERM);
}

TEST_F(SessionTest, ReadOnlyHandlesNeedNoFlush) {
    fs_.add_file("f", "x");
    serve(1);
    const auto entry = kernel_.call(FUSE_LOOKUP, FUSE_ROOT_ID, name_argument("f")).as<fuse_entry_out>();
    fuse_open_in in{};
    in.flags = O_RDONLY;
    EXPECT_NE(kernel_.call(FUSE_OPEN, entry.nodeid, raw(in)).as<fuse_open_out>().open_flags & FOPEN_NOFLUSH, 0U);
    for (const int writable : {O_RDWR, O_RDONLY | O_TRUNC}) {
        in.flags = static_cast<std::uint32_t>(writable);
        EXPECT_EQ(kernel_.call(FUSE_OPEN, entry.nodeid, raw(in)).as<fuse_open_out>().open_flags & FOPEN_NOFLUSH, 0U);
    }
}

// One whose worker does not come back.
class StuckFileSystem final : public fs::MemoryFileSystem {
public:
    StuckFileSystem() : fs::MemoryFileSystem({}) {}
    [[nodiscard]] struct statvfs statfs() const override {
        EXPECT_TRUE(testing::eventually([this] { return free_.load(); }));
        return fs::MemoryFileSystem::statfs();
    }
    void let_go() { free_ = true; }

private:
    std::atomic<bool> free_{false};
};

TEST(StuckSession, SaysHowLongARequestHasKeptItsWorker) {
    FakeKernel kernel;
    StuckFileSystem fs;
    HeapBufferPool pool(8);
    FakeProcesses processes;
    testing::ManualClock clock;
    const auto session = Session::create(kernel.connection()).value();
    testing::InlineExecutor disk;
    session->serve({fs, pool, processes, clock, disk, "/var/tmp"}, 2, {[] {}, [] {}});
    kernel.init();
    EXPECT_TRUE(testing::eventually([&] { return session->longest_request() == Milliseconds(0); }));
    kernel.send(FUSE_STATFS, FUSE_ROOT_ID, {});
    EXPECT_TRUE(testing::eventually([&] {
        clock.move(Milliseconds(1000));
        return session->longest_request() >= Milliseconds(5000);
    }));
    fs.let_go();
    EXPECT_TRUE(kernel.receive());
    EXPECT_TRUE(testing::eventually([&] { return session->longest_request() == Milliseconds(0); }));
}

// Keeps a worker between the beginning of a change and its handing over: it asks for the time.
class StuckClock final : public Clock {
public:
    [[nodiscard]] SteadyTime now() const override { return {}; }
    [[nodiscard]] WallTime wall_now() const override {
        asked_ = true;
        EXPECT_TRUE(testing::eventually([this] { return free_.load(); }));
        return {};
    }
    [[nodiscard]] bool was_asked() const { return asked_; }
    void let_go() { free_ = true; }

private:
    mutable std::atomic<bool> asked_{false};
    std::atomic<bool> free_{false};
};

TEST(StuckSession, UsesNothingOfARequestThatAnInterruptHasAnsweredMeanwhile) {
    FakeKernel kernel;
    fs::MemoryFileSystem fs({});
    fs.add_file("f", "");
    HeapBufferPool pool(8);
    FakeProcesses processes;
    StuckClock clock;
    const auto session = Session::create(kernel.connection()).value();
    testing::InlineExecutor disk;
    session->serve({fs, pool, processes, clock, disk, "/var/tmp"}, 2, {[] {}, [] {}});
    kernel.init();
    const auto file = kernel.call(FUSE_LOOKUP, FUSE_ROOT_ID, name_argument("f")).as<fuse_entry_out>();
    fuse_setattr_in change{};
    change.valid = FATTR_SIZE | FATTR_MTIME | FATTR_MTIME_NOW;
    change.size = 3;
    processes.kill(100);
    const std::uint64_t unique = kernel.send(FUSE_SETATTR, file.nodeid, raw(change));
    EXPECT_TRUE(testing::eventually([&] { return clock.was_asked(); }));
    kernel.interrupt(unique);
    const auto answer = kernel.receive();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->unique, unique);
    EXPECT_EQ(answer->error, EINTR);
    // The other worker has let go of the request before it reads this one.
    EXPECT_EQ(kernel.call(FUSE_STATFS, FUSE_ROOT_ID).error, 0);
    clock.let_go();
    EXPECT_TRUE(testing::eventually([&] { return fs.contents("f").value_or("").size() == change.size; }));
}

TEST_F(SessionTest, TellsTheKernelWhatToForget) {
    session_->kernel_cache().invalidate_entry(FUSE_ROOT_ID, "early");
    serve(1);
    const auto entry = kernel_.receive();
    ASSERT_TRUE(entry);
    EXPECT_EQ(entry->error, FUSE_NOTIFY_INVAL_ENTRY);
    EXPECT_NE(entry->body.find("early"), std::string::npos);
    session_->kernel_cache().invalidate_inode(77);
    const auto inode = kernel_.receive();
    ASSERT_TRUE(inode);
    EXPECT_EQ(inode->error, FUSE_NOTIFY_INVAL_INODE);
    EXPECT_EQ(inode->as<fuse_notify_inval_inode_out>().ino, 77U);
}

}  // namespace
}  // namespace ckptfs
