// SPDX-License-Identifier: Apache-2.0
// More writes than there are buffers.
#include <optional>
#include <string>

#include "unit/fuse/session_fixture.h"

namespace ckptfs {
namespace {

class ParkedWritesTest : public SessionTest {
protected:
    // Twice as many as there are buffers, all held; the number of the last one.
    std::uint64_t park_writes() {
        serve(1);
        std::uint64_t handle = 0;
        const fuse_entry_out entry = kernel_.create("f", &handle);
        fs_.hold("write");
        std::uint64_t last = 0;
        for (std::size_t i = 0; i < 2 * pool_.usage().total_buffers; ++i) {
            last = kernel_.send_write(entry.nodeid, handle, 0, "parked");
        }
        EXPECT_EQ(kernel_.call(FUSE_GETATTR, entry.nodeid, raw(fuse_getattr_in{})).error, 0);
        return last;
    }
};

TEST_F(ParkedWritesTest, MoreWritesThanBuffersDoNotKeepTheWorker) {
    serve(1);
    std::uint64_t handle = 0;
    const fuse_entry_out entry = kernel_.create("f", &handle);
    fs_.hold("write");
    const std::size_t writes = 3 * pool_.usage().total_buffers;
    std::string expected;
    for (std::size_t i = 0; i < writes; ++i) {
        const std::string data(1000, static_cast<char>('a' + i));
        kernel_.send_write(entry.nodeid, handle, i * 1000, data);
        expected += data;
    }
    EXPECT_EQ(kernel_.call(FUSE_GETATTR, entry.nodeid, raw(fuse_getattr_in{})).error, 0);
    EXPECT_EQ(pool_.usage().waiting[0], writes - pool_.usage().total_buffers + 1);
    fs_.let_go();
    for (std::size_t i = 0; i < writes; ++i) {
        const auto answer = kernel_.receive();
        ASSERT_TRUE(answer);
        EXPECT_EQ(answer->as<fuse_write_out>().size, 1000U);
    }
    EXPECT_EQ(fs_.contents("f"), expected);
    EXPECT_TRUE(testing::eventually([this] { return pool_.usage().free_buffers + 1 == pool_.usage().total_buffers; }));
}

TEST_F(ParkedWritesTest, AKilledWriterIsLetGoAlsoWhereNoBufferIsFree) {
    const std::uint64_t last = park_writes();
    processes_.kill(100);
    kernel_.interrupt(last);
    expect_error(EINTR, last);
    fs_.let_go();
    // It has been answered, and its bytes are nobody's.
    for (std::size_t i = 1; i < 2 * pool_.usage().total_buffers; ++i) {
        const auto answer = kernel_.receive();
        ASSERT_TRUE(answer);
        EXPECT_NE(answer->unique, last);
    }
}

TEST_F(ParkedWritesTest, WhereTheDiskTakesNothingAWorkerGoesOnWhenABufferIsFree) {
    staging_dir_ = "/nowhere";
    serve(1);
    std::uint64_t handle = 0;
    const fuse_entry_out entry = kernel_.create("f", &handle);
    fs_.hold("write");
    for (std::size_t i = 0; i < pool_.usage().total_buffers; ++i) {
        kernel_.send_write(entry.nodeid, handle, 0, "parked");
    }
    ASSERT_TRUE(testing::eventually([this] { return pool_.usage().waiting[0] == 1; }));
    const std::uint64_t getattr = kernel_.send(FUSE_GETATTR, entry.nodeid, raw(fuse_getattr_in{}));
    fs_.let_go();
    bool answered = false;
    for (std::size_t i = 0; i <= pool_.usage().total_buffers; ++i) {
        const auto answer = kernel_.receive();
        ASSERT_TRUE(answer);
        answered = answered || answer->unique == getattr;
    }
    EXPECT_TRUE(answered);
}

TEST_F(ParkedWritesTest, StopsWhileAWorkerWaitsForABuffer) {
    staging_dir_ = "/nowhere";
    serve(1);
    std::uint64_t handle = 0;
    const fuse_entry_out entry = kernel_.create("f", &handle);
    fs_.hold("write");
    for (std::size_t i = 0; i < pool_.usage().total_buffers; ++i) {
        kernel_.send_write(entry.nodeid, handle, 0, "parked");
    }
    ASSERT_TRUE(testing::eventually([this] { return pool_.usage().waiting[0] == 1; }));
    session_->stop();
    fs_.let_go();
    EXPECT_TRUE(testing::eventually([this] { return pool_.usage().free_buffers == pool_.usage().total_buffers; }));
}

TEST_F(ParkedWritesTest, StopsWhileWritesAreParkedOnTheDisk) {
    serve(1);
    std::uint64_t handle = 0;
    const fuse_entry_out entry = kernel_.create("f", &handle);
    fs_.hold("write");
    for (std::size_t i = 0; i < 2 * pool_.usage().total_buffers; ++i) {
        kernel_.send_write(entry.nodeid, handle, 0, "parked");
    }
    EXPECT_EQ(kernel_.call(FUSE_GETATTR, entry.nodeid, raw(fuse_getattr_in{})).error, 0);
    session_->stop();
    fs_.let_go();
    EXPECT_TRUE(testing::eventually([this] { return pool_.usage().free_buffers == pool_.usage().total_buffers; }));
}

// Only the watch over interrupted callers has it by then.
TEST_F(ParkedWritesTest, AnInterruptedOneIsAnsweredBeforeTheSessionGoes) {
    const std::uint64_t last = park_writes();
    kernel_.interrupt(last);
    ASSERT_TRUE(testing::eventually([this] { return processes_.asked() > 0; }));
    session_->stop();
    fs_.let_go();
    ASSERT_TRUE(testing::eventually([this] { return pool_.usage().free_buffers == pool_.usage().total_buffers; }));
    session_.reset();
    std::optional<FuseAnswer> answer = kernel_.receive();
    while (answer && answer->unique != last) {
        answer = kernel_.receive();
    }
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->error, EIO);
}

}  // namespace
}  // namespace ckptfs
