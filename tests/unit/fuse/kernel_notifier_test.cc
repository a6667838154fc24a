// SPDX-License-Identifier: Apache-2.0
#include "fuse/kernel_notifier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ckptfs {
namespace {

class RecordingSink final : public KernelNotifier::Sink {
public:
    void invalidate_entry(std::uint64_t parent, const std::string& name) override {
        record(std::to_string(parent) + "/" + name);
    }
    void invalidate_inode(std::uint64_t node, std::uint64_t from) override {
        if (node == kLocked && locked.valid()) {
            locked.wait();
        }
        record(from == 0 ? std::to_string(node) : std::to_string(node) + " from " + std::to_string(from));
    }
    void invalidate_attributes(std::uint64_t node) override { record("attributes of " + std::to_string(node)); }

    static constexpr std::uint64_t kLocked = 99;

    std::vector<std::string> wait_for(std::size_t count) {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::seconds(20), [&] { return seen_.size() >= count; });
        return seen_;
    }
    std::promise<void> entered;
    std::shared_future<void> proceed;
    // Inode kLocked waits for it.
    std::shared_future<void> locked;

private:
    void record(std::string notice) {
        if (proceed.valid()) {
            entered.set_value();
            proceed.wait();
        }
        const std::lock_guard lock(mutex_);
        seen_.push_back(std::move(notice));
        changed_.notify_all();
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::string> seen_;
};

TEST(KernelNotifier, DeliversOnceConnectedAndInOrderForOneInode) {
    RecordingSink sink;
    const InitNegotiation negotiation;
    KernelNotifier notifier{negotiation};
    notifier.invalidate_entry(1, "name");
    notifier.invalidate_inode(7);
    notifier.connect(sink);
    auto seen = sink.wait_for(2);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, (std::vector<std::string>{"1/name", "7"}));
    notifier.invalidate_inode(8);
    notifier.invalidate_attributes(8);
    seen = sink.wait_for(4);
    EXPECT_EQ((std::vector<std::string>{seen[2], seen[3]}), (std::vector<std::string>{"8", "attributes of 8"}));
    notifier.disconnect();
}

TEST(KernelNotifier, OneLockedPageHoldsUpItsOwnInodeOnly) {
    RecordingSink sink;
    std::promise<void> unlock;
    sink.locked = unlock.get_future().share();
    const InitNegotiation negotiation;
    KernelNotifier notifier{negotiation};
    notifier.connect(sink);
    std::atomic<bool> done = false;
    notifier.invalidate_inode(RecordingSink::kLocked, {.done = [&] { done = true; }});
    notifier.invalidate_attributes(RecordingSink::kLocked);
    notifier.invalidate_inode(7);
    notifier.invalidate_entry(1, "name");
    auto seen = sink.wait_for(2);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, (std::vector<std::string>{"1/name", "7"}));
    EXPECT_FALSE(done);
    unlock.set_value();
    seen = sink.wait_for(4);
    EXPECT_EQ(seen[2], "99");
    EXPECT_EQ(seen[3], "attributes of 99");
    EXPECT_TRUE(done);
    notifier.disconnect();
}

TEST(KernelNotifier, ANoticeThatIsNotDueYetIsDropped) {
    RecordingSink sink;
    const InitNegotiation negotiation;
    KernelNotifier notifier{negotiation};
    notifier.connect(sink);
    bool done = false;
    notifier.invalidate_inode(7, {.is_due = [] { return false; }, .done = [&] { done = true; }});
    notifier.invalidate_inode(7, {.is_due = [] { return true; }});
    notifier.invalidate_attributes(7);
    EXPECT_EQ(sink.wait_for(2), (std::vector<std::string>{"7", "attributes of 7"}));
    EXPECT_FALSE(done);
    notifier.disconnect();
}

TEST(KernelNotifier, TakesThoseThatAnAnswerWaitsForFirst) {
    RecordingSink sink;
    const InitNegotiation negotiation;
    KernelNotifier notifier{negotiation};
    // Of one node: those of others may be given at the same time.
    notifier.invalidate_entry(8, "a");
    notifier.invalidate_inode(8);
    notifier.invalidate_inode(8, {.from = 4096, .held = std::make_shared<int>()});
    notifier.connect(sink);
    EXPECT_EQ(sink.wait_for(3).front(), "8 from 4096");
    notifier.disconnect();
}

// The caller may have a lock that what is held needs as it ends.
TEST(KernelNotifier, LetsGoOfWhatADroppedNoticeHoldsOnAThreadOfItsOwn) {
    RecordingSink sink;
    const InitNegotiation negotiation;
    KernelNotifier notifier{negotiation};
    std::promise<std::thread::id> ended;
    notifier.invalidate_inode(
        1, {.held = std::shared_ptr<void>(&ended, [&](void*) { ended.set_value(std::this_thread::get_id()); })});
    for (std::size_t i = 0; i < KernelNotifier::kMaxQueued; ++i) {
        notifier.invalidate_inode(i + 2);
    }
    auto end = ended.get_future();
    EXPECT_EQ(end.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    notifier.connect(sink);
    EXPECT_NE(end.get(), std::this_thread::get_id());
    notifier.disconnect();
}

TEST(KernelNotifier, DropsTheOldestWhenFull) {
    RecordingSink sink;
    const InitNegotiation negotiation;
    KernelNotifier notifier{negotiation};
    for (std::size_t i = 0; i <= KernelNotifier::kMaxQueued; ++i) {
        notifier.invalidate_inode(i);
    }
    notifier.connect(sink);
    const auto seen = sink.wait_for(KernelNotifier::kMaxQueued);
    ASSERT_EQ(seen.size(), KernelNotifier::kMaxQueued);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), "0"), 0);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), "1"), 1);
    notifier.disconnect();
}

// As each of many small writes asks for.
TEST(KernelNotifier, TheSameAgainDropsNothingElse) {
    RecordingSink sink;
    const InitNegotiation negotiation;
    KernelNotifier notifier{negotiation};
    notifier.invalidate_inode(7);
    notifier.invalidate_inode(8, {.is_due = [] { return true; }});
    for (std::size_t i = 0; i < KernelNotifier::kMaxQueued; ++i) {
        notifier.invalidate_inode(9, {.from = 4096});
    }
    notifier.invalidate_inode(9);
    notifier.connect(sink);
    auto seen = sink.wait_for(4);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, (std::vector<std::string>{"7", "8", "9", "9 from 4096"}));
    notifier.disconnect();
}

TEST(KernelNotifier, DropsNoneThatIsGivenNoSecondTime) {
    RecordingSink sink;
    const InitNegotiation negotiation;
    KernelNotifier notifier{negotiation};
    notifier.invalidate_inode(7, {.is_due = [] { return true; }});
    for (std::size_t i = 0; i < KernelNotifier::kMaxQueued; ++i) {
        notifier.invalidate_inode(i + 8);
    }
    notifier.connect(sink);
    const auto seen = sink.wait_for(KernelNotifier::kMaxQueued);
    EXPECT_NE(std::find(seen.begin(), seen.end(), "7"), seen.end());
    notifier.disconnect();
}

TEST(KernelNotifier, DisconnectWaitsForTheNoticeUnderWay) {
    RecordingSink sink;
    std::promise<void> proceed;
    sink.proceed = proceed.get_future().share();
    const InitNegotiation negotiation;
    KernelNotifier notifier{negotiation};
    notifier.connect(sink);
    notifier.invalidate_inode(3);
    sink.entered.get_future().wait();
    auto disconnected = std::async(std::launch::async, [&] { notifier.disconnect(); });
    EXPECT_EQ(disconnected.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
    proceed.set_value();
    disconnected.get();
    EXPECT_EQ(sink.wait_for(1).size(), 1U);
    notifier.invalidate_inode(4);
    EXPECT_EQ(sink.wait_for(1).size(), 1U);
}

}  // namespace
}  // namespace ckptfs
