// SPDX-License-Identifier: Apache-2.0
#include "write/pending_calls.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/mutex.h"

namespace ckptfs {
namespace {

struct MarkedWrite : PendingWrite {
    bool marked = false;
};

using Calls = PendingCalls<MarkedWrite, PendingTruncate, PendingCommit>;

class PendingCallsTest : public ::testing::Test {
protected:
    void add_write(std::optional<std::uint64_t> offset) {
        add(MarkedWrite{{offset, {}, [this](const Status& status) { note("write", status); }}});
    }
    void add_truncate() {
        add(PendingTruncate{0, [this](const Status& status) { note("truncate", status); }});
    }
    void add_commit() {
        add(PendingCommit{CommitReason::kClose, [this](const Result<CommittedObject>& object) {
                              note("commit", object ? Status() : failure(object.error()));
                          }});
    }

    std::optional<std::uint64_t> taken_offset() { return std::get<MarkedWrite>(*calls_.take()).offset; }

    Calls calls_;
    std::vector<std::string> answers_;

private:
    void add(Calls::Call call) { calls_.add(std::make_shared<Calls::Call>(std::move(call))); }
    void note(const std::string& call, const Status& status) {
        answers_.push_back(call + (status ? "" : ": " + status.error().message));
    }
};

TEST_F(PendingCallsTest, AreTakenInTheOrderInWhichTheyCame) {
    add_write(1);
    add_write(2);
    const Calls::Pointer first = calls_.take();
    EXPECT_EQ(taken_offset(), 2);
    EXPECT_TRUE(calls_.empty());
    calls_.put_back(first);
    EXPECT_EQ(taken_offset(), 1);
}

TEST_F(PendingCallsTest, SayWhatIsAmongThem) {
    EXPECT_FALSE(calls_.have_commit());
    EXPECT_FALSE(calls_.have_change());
    add_commit();
    EXPECT_TRUE(calls_.have_commit());
    EXPECT_FALSE(calls_.have_change());
    add_truncate();
    EXPECT_TRUE(calls_.have_change());
    calls_.take();
    EXPECT_FALSE(calls_.have_commit());
    calls_.take();
    add_write(0);
    EXPECT_TRUE(calls_.have_change());
}

TEST_F(PendingCallsTest, AWriteIsPreferredToWritesAndTheyStayInOrder) {
    add_write(3);
    add_write(std::nullopt);
    add_write(1);
    add_write(1);
    calls_.prefer<MarkedWrite>([](const MarkedWrite& write) { return write.offset == 1; });
    EXPECT_EQ(taken_offset(), 1);
    EXPECT_EQ(taken_offset(), 3);
    EXPECT_EQ(taken_offset(), std::nullopt);
    EXPECT_EQ(taken_offset(), 1);
}

TEST_F(PendingCallsTest, NoWriteIsPreferredToAnotherKindOfCall) {
    add_write(3);
    add_commit();
    add_write(1);
    calls_.prefer<MarkedWrite>([](const MarkedWrite& write) { return write.offset == 1; });
    EXPECT_EQ(taken_offset(), 3);
}

TEST_F(PendingCallsTest, CommitsAreTakenUpToTheNextChange) {
    add_commit();
    add_commit();
    add_write(0);
    add_commit();
    EXPECT_EQ(calls_.take_commits().size(), 2);
    EXPECT_EQ(calls_.take_commits().size(), 0);
    EXPECT_TRUE(calls_.have_commit());
    EXPECT_EQ(taken_offset(), 0);
}

TEST_F(PendingCallsTest, AllAreRefusedInOrderAndLeftToTheOutbox) {
    add_write(0);
    add_commit();
    add_truncate();
    Mutex mutex;
    Outbox outbox;
    MutexLock lock(mutex);
    calls_.refuse_all(failure(EIO, "gone").value(), outbox);
    EXPECT_TRUE(calls_.empty());
    EXPECT_TRUE(answers_.empty());
    outbox.deliver(lock);
    EXPECT_EQ(answers_, (std::vector<std::string>{"write: gone", "commit: gone", "truncate: gone"}));
}

}  // namespace
}  // namespace ckptfs
