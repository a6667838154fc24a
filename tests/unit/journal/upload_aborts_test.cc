// SPDX-License-Identifier: Apache-2.0
#include "journal/upload_aborts.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "journal/journaled_store.h"
#include "support/fake_store.h"
#include "support/manual_clock.h"
#include "support/stepped_timer.h"

namespace ckptfs {
namespace {

using std::chrono::seconds;
using testing::Fault;
using testing::Operation;

class UploadAbortsTest : public ::testing::Test {
protected:
    UploadId create(const std::string& key = "run/model.pt") {
        CreateUploadRequest request;
        request.key = key;
        UploadId id;
        journaled_.create_upload(std::move(request), [&](Result<UploadId> answer) { id = answer.value(); });
        return id;
    }
    void refuse(int times, int errno_value = EIO) {
        Fault fault;
        fault.operation = Operation::kAbortUpload;
        fault.error = testing::store_error(errno_value, "InternalError", 500);
        fault.times = times;
        store_.inject(fault);
    }
    // Whether it was ended before this returns.
    bool abort(const UploadId& upload) {
        const auto aborted = std::make_shared<bool>(false);
        journaled_.abort_upload(upload, [aborted](const Status& result) { *aborted = result.has_value(); });
        return *aborted;
    }
    std::vector<std::string> listed() {
        std::vector<std::string> keys;
        journaled_.list_uploads("run/", [&](const Result<std::vector<OpenUpload>>& uploads) {
            for (const OpenUpload& each : uploads.value()) {
                keys.push_back(each.upload.key);
            }
        });
        return keys;
    }

    testing::FakeStore store_;
    testing::ManualClock clock_;
    testing::SteppedTimer timer_;
    const std::unique_ptr<MountJournal> journal_ = MountJournal::in_memory();
    LostAnswers answers_;
    LostUploads lost_{{store_, timer_, clock_, *journal_, answers_}};
    UploadAborts aborts_{store_, timer_, *journal_};
    JournaledStore journaled_{store_, *journal_, lost_, aborts_, "run/"};
};

TEST_F(UploadAbortsTest, OpenOnesAreToldFromThoseOfOtherMounts) {
    const UploadId own = create();
    CreateUploadRequest request;
    request.key = own.key;
    UploadId other;
    store_.create_upload(std::move(request), [&](Result<UploadId> answer) { other = answer.value(); });
    std::map<std::string, bool> found;
    journaled_.list_uploads("run/", [&](const Result<std::vector<OpenUpload>>& uploads) {
        for (const OpenUpload& each : uploads.value()) {
            found[each.upload.id] = each.is_own;
        }
    });
    EXPECT_EQ(found, (std::map<std::string, bool>{{own.id, true}, {other.id, false}}));
}

TEST_F(UploadAbortsTest, OneThatFailedIsTriedAgain) {
    const UploadId upload = create();
    refuse(1);
    EXPECT_FALSE(abort(upload));
    EXPECT_EQ(store_.open_uploads(), 1);
    EXPECT_TRUE(journal_->is_open(upload));
    EXPECT_EQ(timer_.run(), seconds(5));
    EXPECT_EQ(store_.open_uploads(), 0);
    EXPECT_FALSE(journal_->is_open(upload));
    EXPECT_EQ(timer_.waiting(), 0U);
}

TEST_F(UploadAbortsTest, PausesGrowToAMinute) {
    const UploadId upload = create();
    refuse(6);
    EXPECT_FALSE(abort(upload));
    for (const int pause : {5, 10, 20, 40, 60, 60}) {
        EXPECT_EQ(store_.open_uploads(), 1);
        EXPECT_EQ(timer_.run(), seconds(pause));
    }
    EXPECT_EQ(store_.open_uploads(), 0);
    EXPECT_EQ(timer_.waiting(), 0U);
}

TEST_F(UploadAbortsTest, WhatIsTriedAgainIsNoFileThatIsBeingWritten) {
    const UploadId upload = create();
    create("run/other.pt");
    refuse(1);
    EXPECT_FALSE(abort(upload));
    EXPECT_EQ(listed(), std::vector<std::string>{"run/other.pt"});
}

TEST_F(UploadAbortsTest, OneThatSucceedsElsewhereIsNotTriedAgain) {
    const UploadId upload = create();
    refuse(1);
    EXPECT_FALSE(abort(upload));
    EXPECT_TRUE(abort(upload));
    EXPECT_EQ(timer_.waiting(), 0U);
    EXPECT_FALSE(aborts_.is_left(upload));
}

TEST_F(UploadAbortsTest, WhatIsNotAllowedIsNotTriedAgain) {
    const UploadId upload = create();
    refuse(1, EACCES);
    EXPECT_FALSE(abort(upload));
    EXPECT_EQ(timer_.waiting(), 0U);
    EXPECT_TRUE(listed().empty()) << "this mount's markers do not wait for it";
    EXPECT_TRUE(journal_->is_open(upload)) << "for the next mount";
    bool ended = false;
    aborts_.stop([&] { ended = true; });
    EXPECT_TRUE(ended);
    EXPECT_EQ(store_.calls(Operation::kAbortUpload), 1);
}

TEST_F(UploadAbortsTest, CredentialsThatHaveExpiredAreNotAMissingRight) {
    const UploadId upload = create();
    Fault expired;
    expired.operation = Operation::kAbortUpload;
    expired.error = testing::store_error(EACCES, "ExpiredToken", 400);
    expired.error.retryable = true;
    store_.inject(expired);
    EXPECT_FALSE(abort(upload));
    EXPECT_TRUE(aborts_.is_left(upload));
    timer_.run();
    EXPECT_EQ(store_.open_uploads(), 0U);
}

TEST_F(UploadAbortsTest, TheEndOfTheMountTriesOnceMore) {
    const UploadId upload = create();
    const UploadId hanging = create("run/hanging.pt");
    refuse(1);
    EXPECT_FALSE(abort(upload));
    store_.hold(Operation::kAbortUpload);
    EXPECT_FALSE(abort(hanging)) << "it has no answer yet";
    bool ended = false;
    aborts_.stop([&] { ended = true; });
    EXPECT_EQ(timer_.waiting(), 0U);
    EXPECT_FALSE(ended);
    store_.release_one(Operation::kAbortUpload);
    EXPECT_FALSE(ended);
    store_.release_one(Operation::kAbortUpload);
    EXPECT_TRUE(ended);
    EXPECT_EQ(store_.open_uploads(), 0);
}

TEST_F(UploadAbortsTest, TheEndOfTheMountDoesNotWaitForAStoreThatIsAway) {
    const UploadId upload = create();
    refuse(100);
    EXPECT_FALSE(abort(upload));
    bool ended = false;
    aborts_.stop([&] { ended = true; });
    EXPECT_TRUE(ended);
    EXPECT_EQ(store_.calls(Operation::kAbortUpload), 2);
    EXPECT_EQ(timer_.waiting(), 0U);
    EXPECT_TRUE(journal_->is_open(upload)) << "for the next mount";
}

}  // namespace
}  // namespace ckptfs
