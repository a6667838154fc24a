// SPDX-License-Identifier: Apache-2.0
// A cycle without a writer: what it asks its owner for, and what becomes of completions that come when it is gone.
#include "write/upload_cycle.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "support/eventually.h"
#include "support/pattern.h"
#include "writer_fixture.h"

namespace ckptfs::testing {
namespace {

constexpr std::uint64_t kLarge = 20 * kMiB + 5;

// Has one cycle at a time, as a writer does, and notes what it is told.
class Owner final : public CycleOwner, public std::enable_shared_from_this<Owner> {
public:
    explicit Owner(WriteEnvironment& environment)
        : environment_(environment), group_(WriterGroup::create(environment)), cycle_(new_cycle()) {}

    void begin(std::shared_ptr<const FrameEncoder> encoder) {
        change([encoder = std::move(encoder)](UploadCycle& cycle) mutable {
            CycleStart start;
            start.encoder = std::move(encoder);
            cycle.begin(std::move(start));
        });
    }
    void accept(const std::string& text) {
        const auto bytes = std::make_shared<const std::string>(text);
        change([&](UploadCycle& cycle) { cycle.accept(Slice{bytes, as_bytes(*bytes)}); });
        size_ += text.size();
    }
    // Nothing where the file has failed.
    void commit() {
        change([](UploadCycle& cycle) {
            if (cycle.begun()) {
                cycle.begin_commit();
            }
        });
    }
    // The file starts over: what is under way belongs to a cycle that has ended.
    void replace() {
        size_ = 0;
        change([this](UploadCycle& cycle) REQUIRES(mutex_) {
            end_upload(cycle.take_upload());
            end();
        });
    }
    [[nodiscard]] bool is_over() const {
        const MutexLock lock(mutex_);
        return !published_.empty() || !failures_.empty();
    }
    [[nodiscard]] std::vector<std::string> published_etags() const {
        const MutexLock lock(mutex_);
        return published_;
    }
    [[nodiscard]] std::vector<std::string> failures() const {
        const MutexLock lock(mutex_);
        return failures_;
    }
    // Of completions whose cycle had ended.
    [[nodiscard]] int late() const {
        const MutexLock lock(mutex_);
        return late_;
    }

    std::shared_ptr<CycleOwner> kept_owner() override { return shared_from_this(); }
    Outbox& outbox() override REQUIRES(mutex_) { return outbox_; }
    std::string shown_key() const override { return "dir/file"; }
    Error about_this_file(Error error) const override {
        error.message = "dir/file: " + error.message;
        return error;
    }
    void fail(Error error) override REQUIRES(mutex_) {
        failures_.push_back(std::move(error.message));
        end_upload(cycle_->take_upload());
        end();
    }
    std::shared_ptr<Upload> new_upload(Metadata metadata, std::string content_encoding) override {
        return Upload::create(environment_.store,
                              {"dir/file", std::move(metadata), std::move(content_encoding), false});
    }
    void end_upload(std::shared_ptr<Upload> upload) override REQUIRES(mutex_) {
        if (upload) {
            outbox_.add([upload = std::move(upload)] { upload->abort([](const Status& /*ended*/) {}); });
        }
    }
    CopySource committed_source() const override { return {}; }
    void published(Result<PutResponse> result) override REQUIRES(mutex_) {
        if (!result) {
            fail(std::move(result.error()));
            return;
        }
        published_.push_back(result->etag);
        end();
    }
    bool resume(const WeakCycle& cycle, const std::function<void(UploadCycle&)>& change) override {
        MutexLock lock(mutex_);
        if (cycle.lock() != cycle_) {
            ++late_;
            return false;
        }
        change(*cycle_);
        advance();
        outbox_.deliver(lock);
        return true;
    }

private:
    template <class Change>
    void change(Change&& change) {
        MutexLock lock(mutex_);
        change(*cycle_);
        advance();
        outbox_.deliver(lock);
    }
    void advance() REQUIRES(mutex_) {
        while (cycle_->is_committing() && !cycle_->is_publishing() && cycle_->commit_step(size_)) {
        }
    }
    void end() REQUIRES(mutex_) {
        outbox_.add([ended = std::exchange(cycle_, new_cycle())] {});
    }
    std::shared_ptr<UploadCycle> new_cycle() { return std::make_shared<UploadCycle>(*this, environment_, group_); }

    WriteEnvironment& environment_;
    const std::shared_ptr<WriterGroup> group_;
    std::uint64_t size_ = 0;

    mutable Mutex mutex_;
    Outbox outbox_ GUARDED_BY(mutex_);
    std::shared_ptr<UploadCycle> cycle_ GUARDED_BY(mutex_);
    std::vector<std::string> published_ GUARDED_BY(mutex_);
    std::vector<std::string> failures_ GUARDED_BY(mutex_);
    int late_ GUARDED_BY(mutex_) = 0;
};

class UploadCycleTest : public ::testing::Test {
protected:
    [[nodiscard]] bool ends() const {
        return eventually([this] { return owner->is_over(); });
    }
    [[nodiscard]] bool comes_late(int completions) const {
        return eventually([&] { return owner->late() >= completions; });
    }

    WriterFixture fixture;
    std::shared_ptr<Owner> owner = std::make_shared<Owner>(fixture.environment);
};

TEST_F(UploadCycleTest, OfLessThanAPartIsOneRequest) {
    owner->begin(fixture.codec->plain_encoder());
    owner->accept("whole");
    owner->commit();
    ASSERT_TRUE(ends());
    EXPECT_EQ(fixture.store.content("dir/file"), "whole");
    EXPECT_EQ(owner->published_etags(), std::vector<std::string>{fixture.store.info("dir/file").etag});
    EXPECT_EQ(fixture.store.calls(Operation::kCreateUpload), 0);
}

TEST_F(UploadCycleTest, PartsAreFewerWhereTheStoreAsksForFewerRequests) {
    const std::string content = pattern(3 * kLarge);
    owner->begin(fixture.codec->plain_encoder());
    owner->accept(content.substr(0, kLarge));
    fixture.store.slow_down_to(1);
    owner->accept(content.substr(kLarge));
    owner->commit();
    ASSERT_TRUE(ends());
    EXPECT_EQ(fixture.store.content("dir/file"), content);
    // Two of 8 MiB, then what half of the budget holds twice.
    EXPECT_LE(fixture.store.calls(Operation::kUploadPart), 4);
}

TEST_F(UploadCycleTest, PartsLeaveBeforeTheCommit) {
    owner->begin(fixture.codec->plain_encoder());
    const std::string content = pattern(kLarge);
    for (std::uint64_t at = 0; at < content.size(); at += kMiB) {
        owner->accept(content.substr(at, kMiB));
    }
    EXPECT_TRUE(eventually([this] { return fixture.store.calls(Operation::kUploadPart) > 0; }));
    EXPECT_FALSE(fixture.store.exists("dir/file"));
    owner->commit();
    ASSERT_TRUE(ends());
    EXPECT_EQ(fixture.store.content("dir/file"), content);
    EXPECT_TRUE(fixture.no_upload_left());
}

TEST_F(UploadCycleTest, WhatIsPublishedLateIsNotTakenForTheNextCyclesCommit) {
    fixture.store.hold(Operation::kPut);
    owner->begin(fixture.codec->plain_encoder());
    owner->accept("first");
    owner->commit();
    ASSERT_TRUE(fixture.store.wait_until_held(Operation::kPut, 1));
    owner->replace();
    owner->begin(fixture.codec->plain_encoder());
    owner->accept("second");
    fixture.store.release(Operation::kPut);
    ASSERT_TRUE(comes_late(1));
    EXPECT_FALSE(owner->is_over());
    owner->commit();
    ASSERT_TRUE(ends());
    EXPECT_EQ(fixture.store.content("dir/file"), "second");
    EXPECT_EQ(owner->published_etags().size(), 1U);
}

TEST_F(UploadCycleTest, PartsThatFailLateDoNotFailTheNextCycle) {
    fixture.store.hold(Operation::kUploadPart);
    fixture.break_next(Operation::kUploadPart);
    owner->begin(fixture.codec->plain_encoder());
    owner->accept(pattern(kLarge));
    ASSERT_TRUE(fixture.store.wait_until_held(Operation::kUploadPart, 1));
    owner->replace();
    owner->begin(fixture.codec->plain_encoder());
    owner->accept("second");
    fixture.store.release(Operation::kUploadPart);
    ASSERT_TRUE(comes_late(1));
    owner->commit();
    ASSERT_TRUE(ends());
    EXPECT_EQ(owner->failures(), std::vector<std::string>{});
    EXPECT_EQ(fixture.store.content("dir/file"), "second");
    EXPECT_TRUE(fixture.no_upload_left());
}

TEST_F(UploadCycleTest, FailsOnceHoweverManyPartsDo) {
    for (int skip = 0; skip < 3; ++skip) {
        fixture.break_next(Operation::kUploadPart, skip);
    }
    owner->begin(fixture.codec->plain_encoder());
    owner->accept(pattern(kLarge));
    owner->commit();
    ASSERT_TRUE(ends());
    EXPECT_TRUE(fixture.no_upload_left());
    EXPECT_EQ(owner->failures().size(), 1U);
    EXPECT_FALSE(fixture.store.exists("dir/file"));
    EXPECT_TRUE(fixture.all_buffers_returned());
}

TEST_F(UploadCycleTest, AContainersRecordsAreHandedOverWithItsCommit) {
    WriterFixture compressing(256 * kMiB, {}, "zstd");
    owner = std::make_shared<Owner>(compressing.environment);
    owner->begin(compressing.codec->encoder("dir/file"));
    const std::string content(3 * kMiB, 'c');
    owner->accept(content);
    owner->commit();
    ASSERT_TRUE(ends());
    EXPECT_EQ(compressing.file("dir/file"), content);
    EXPECT_LT(compressing.store.content("dir/file").size(), content.size() / 10);
    owner.reset();
}

}  // namespace
}  // namespace ckptfs::testing
