// SPDX-License-Identifier: Apache-2.0
#include "write/upload.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/digest.h"
#include "support/fake_store.h"

namespace ckptfs {
namespace {

using testing::FakeStore;
using testing::Fault;
using testing::Operation;

struct Answers {
    std::vector<Status> parts;
    std::vector<Result<PutResponse>> published;
    std::vector<Status> aborted;

    Upload::PartDone part() {
        return [this](const Status& status) { parts.push_back(status); };
    }
    Upload::Published publish() {
        return [this](Result<PutResponse> result) { published.push_back(std::move(result)); };
    }
    Upload::Done abort() {
        return [this](const Status& status) { aborted.push_back(status); };
    }
};

class UploadTest : public ::testing::Test {
protected:
    void send(int number, const std::string& text) {
        upload_->send_part(number, Payload::from_string(text), crc32c(as_bytes(text)), answers_.part());
    }
    void break_next(Operation operation, bool after_effect = false) {
        Fault fault;
        fault.operation = operation;
        fault.error = testing::store_error(EIO, "InternalError", 500);
        fault.after_effect = after_effect;
        store_.inject(fault);
    }

    FakeStore store_{1};
    Answers answers_;
    std::shared_ptr<Upload> upload_ = Upload::create(store_, {"dir/file", {{"kind", "test"}}, "zstd"});
};

TEST_F(UploadTest, PutsAWholeObjectWithItsWriteId) {
    upload_->put(Payload::from_string("hello"), crc32c(as_bytes("hello")), answers_.publish());
    ASSERT_EQ(answers_.published.size(), 1U);
    ASSERT_TRUE(answers_.published[0]);
    EXPECT_EQ(answers_.published[0]->etag, store_.info("dir/file").etag);
    EXPECT_EQ(store_.content("dir/file"), "hello");
    EXPECT_EQ(store_.info("dir/file").metadata.at("kind"), "test");
    EXPECT_EQ(store_.info("dir/file").metadata.at(kWriteIdMetadata).size(), 36U);
    EXPECT_EQ(store_.info("dir/file").content_encoding, "zstd");
    EXPECT_EQ(store_.calls(), 1);
}

TEST_F(UploadTest, JoinsPartsByNumberWhateverTheirOrder) {
    send(3, "three");
    send(1, "one");
    send(2, "two");
    EXPECT_EQ(upload_->bytes_in_store(), 11U);
    EXPECT_FALSE(store_.exists("dir/file"));
    upload_->complete(11, answers_.publish());
    ASSERT_EQ(answers_.published.size(), 1U);
    ASSERT_TRUE(answers_.published[0]);
    EXPECT_EQ(store_.content("dir/file"), "onetwothree");
    EXPECT_EQ(store_.calls(Operation::kCreateUpload), 1);
    EXPECT_EQ(store_.info("dir/file").metadata.at(kWriteIdMetadata).size(), 36U);
    EXPECT_EQ(store_.open_uploads(), 0);
}

TEST_F(UploadTest, OneThatAnotherClientEndsBeforeItHoldsAPartIsBegunAnew) {
    store_.hold(Operation::kUploadPart);
    send(1, "one");
    send(2, "two");
    store_.list_uploads("dir/", [&](const Result<std::vector<OpenUpload>>& open) {
        store_.abort_upload(open.value().at(0).upload, [](const Status& ended) { EXPECT_TRUE(ended); });
    });
    upload_->complete(6, answers_.publish());
    store_.release(Operation::kUploadPart);
    ASSERT_EQ(answers_.published.size(), 1U);
    ASSERT_TRUE(answers_.published[0]);
    EXPECT_EQ(store_.content("dir/file"), "onetwo");
    EXPECT_EQ(store_.calls(Operation::kCreateUpload), 2);
    EXPECT_EQ(store_.open_uploads(), 0);
}

TEST_F(UploadTest, OneThatAnotherClientEndsLaterFails) {
    send(1, "one");
    store_.list_uploads("dir/", [&](const Result<std::vector<OpenUpload>>& open) {
        store_.abort_upload(open.value().at(0).upload, [](const Status& ended) { EXPECT_TRUE(ended); });
    });
    send(2, "two");
    upload_->complete(6, answers_.publish());
    ASSERT_EQ(answers_.published.size(), 1U);
    ASSERT_FALSE(answers_.published[0]);
    EXPECT_EQ(answers_.published[0].error().s3_code, "NoSuchUpload");
    EXPECT_EQ(store_.calls(Operation::kCreateUpload), 1);
}

TEST_F(UploadTest, DoesNotPublishPartsThatAddUpToAnotherSize) {
    send(1, "one");
    send(2, "two");
    upload_->complete(9, answers_.publish());
    ASSERT_EQ(answers_.published.size(), 1U);
    ASSERT_FALSE(answers_.published[0]);
    EXPECT_EQ(answers_.published[0].error().errno_value, EIO);
    EXPECT_EQ(store_.calls(Operation::kCompleteUpload), 0);
    upload_->abort(answers_.abort());
    EXPECT_EQ(store_.open_uploads(), 0);
}

TEST_F(UploadTest, CompletesOnlyWhenEveryPartHasArrived) {
    store_.hold(Operation::kUploadPart);
    send(1, "one");
    send(2, "two");
    upload_->complete(6, answers_.publish());
    EXPECT_EQ(store_.calls(Operation::kCompleteUpload), 0);
    store_.release(Operation::kUploadPart);
    ASSERT_EQ(answers_.published.size(), 1U);
    EXPECT_EQ(store_.content("dir/file"), "onetwo");
}

TEST_F(UploadTest, SendsAPartAgainOnlyAfterTheEarlierRequest) {
    store_.hold(Operation::kUploadPart);
    send(1, "first");
    send(1, "second");
    send(1, "third");
    EXPECT_EQ(store_.calls(Operation::kUploadPart), 1);
    store_.release(Operation::kUploadPart);
    // The second was superseded before it left; its sender hears of the third.
    EXPECT_EQ(store_.calls(Operation::kUploadPart), 2);
    EXPECT_EQ(answers_.parts.size(), 3U);
    upload_->complete(5, answers_.publish());
    EXPECT_EQ(store_.content("dir/file"), "third");
}

TEST_F(UploadTest, LeavesForgottenPartsOut) {
    send(1, "one");
    send(2, "two");
    send(3, "three");
    upload_->forget_parts_from(2);
    send(2, "2");
    upload_->complete(4, answers_.publish());
    EXPECT_EQ(store_.content("dir/file"), "one2");
}

TEST_F(UploadTest, CopiesPartsOfAnObjectPinnedByItsETag) {
    store_.put_object("dir/file", std::string(std::size_t{6} << 20, 'a'));
    const std::string etag = store_.info("dir/file").etag;
    upload_->copy_part(1, {"dir/file", etag, std::size_t{6} << 20, std::nullopt}, answers_.part());
    send(2, "tail");
    upload_->complete((std::size_t{6} << 20) + 4, answers_.publish());
    ASSERT_EQ(answers_.published.size(), 1U);
    ASSERT_TRUE(answers_.published[0]) << answers_.published[0].error().message;
    EXPECT_EQ(store_.content("dir/file").size(), (std::size_t{6} << 20) + 4);

    const auto other = Upload::create(store_, {"dir/file", {}, ""});
    other->copy_part(1, {"dir/file", etag, std::size_t{6} << 20, std::nullopt}, answers_.part());
    ASSERT_FALSE(answers_.parts.back());
    EXPECT_EQ(answers_.parts.back().error().errno_value, ESTALE);
}

TEST_F(UploadTest, KeepsTheFirstFailureAndSendsNothingAfterIt) {
    break_next(Operation::kUploadPart);
    send(1, "one");
    ASSERT_EQ(answers_.parts.size(), 1U);
    EXPECT_FALSE(answers_.parts[0]);
    const int calls = store_.calls();
    send(2, "two");
    upload_->complete(3, answers_.publish());
    EXPECT_EQ(store_.calls(), calls);
    ASSERT_EQ(answers_.published.size(), 1U);
    ASSERT_FALSE(answers_.published[0]);
    EXPECT_EQ(answers_.published[0].error().s3_code, "InternalError");
    upload_->abort(answers_.abort());
    EXPECT_EQ(answers_.aborted.size(), 1U);
    EXPECT_EQ(store_.open_uploads(), 0);
    EXPECT_FALSE(store_.exists("dir/file"));
}

TEST_F(UploadTest, AnswersEveryPartWhenTheUploadCannotBeCreated) {
    store_.hold(Operation::kCreateUpload);
    send(1, "one");
    send(2, "two");
    break_next(Operation::kCreateUpload);
    store_.release(Operation::kCreateUpload);
    ASSERT_EQ(answers_.parts.size(), 2U);
    EXPECT_FALSE(answers_.parts[0]);
    EXPECT_FALSE(answers_.parts[1]);
    EXPECT_EQ(store_.calls(Operation::kUploadPart), 0);
    EXPECT_EQ(upload_->requests_in_flight(), 0);
}

TEST_F(UploadTest, AbortEndsTheUploadAtOnceAndAgainAfterWhatIsInFlight) {
    store_.hold(Operation::kUploadPart);
    send(1, "one");
    upload_->abort(answers_.abort());
    EXPECT_EQ(store_.open_uploads(), 0);
    EXPECT_TRUE(answers_.aborted.empty());
    store_.release(Operation::kUploadPart);
    EXPECT_EQ(answers_.aborted.size(), 1U);
    EXPECT_EQ(store_.calls(Operation::kAbortUpload), 2);
    EXPECT_EQ(store_.open_uploads(), 0);
}

TEST_F(UploadTest, WhatIsGivenUpStaysInTheStoreUntilItIsAborted) {
    send(1, "one");
    store_.hold(Operation::kUploadPart);
    send(2, "two");
    send(2, "too");
    upload_->complete(6, answers_.publish());
    upload_->give_up();
    // What was to be sent next is not kept for longer.
    ASSERT_EQ(answers_.parts.size(), 2U);
    EXPECT_FALSE(answers_.parts[1]);
    store_.release(Operation::kUploadPart);
    ASSERT_EQ(answers_.published.size(), 1U);
    EXPECT_FALSE(answers_.published[0]);
    EXPECT_EQ(store_.calls(Operation::kCompleteUpload), 0);
    EXPECT_EQ(store_.calls(Operation::kAbortUpload), 0);
    EXPECT_EQ(store_.open_uploads(), 1);
    upload_->abort(answers_.abort());
    EXPECT_EQ(answers_.aborted.size(), 1U);
    EXPECT_EQ(store_.open_uploads(), 0);
}

TEST_F(UploadTest, AbortBeforeTheUploadExistsEndsItOnceItDoes) {
    store_.hold(Operation::kCreateUpload);
    send(1, "one");
    upload_->abort(answers_.abort());
    EXPECT_EQ(answers_.parts.size(), 1U);
    store_.release(Operation::kCreateUpload);
    EXPECT_EQ(answers_.aborted.size(), 1U);
    EXPECT_EQ(store_.open_uploads(), 0);
}

TEST_F(UploadTest, AbortDuringCompleteLetsThePublishedObjectStay) {
    send(1, "one");
    store_.hold(Operation::kCompleteUpload);
    upload_->complete(3, answers_.publish());
    upload_->abort(answers_.abort());
    EXPECT_TRUE(answers_.aborted.empty());
    store_.release(Operation::kCompleteUpload);
    ASSERT_EQ(answers_.published.size(), 1U);
    EXPECT_TRUE(answers_.published[0]);
    EXPECT_EQ(answers_.aborted.size(), 1U);
    EXPECT_EQ(store_.calls(Operation::kAbortUpload), 0);
    EXPECT_EQ(store_.content("dir/file"), "one");
}

TEST_F(UploadTest, TellsWhenAnUploadCouldNotBeEnded) {
    send(1, "one");
    break_next(Operation::kAbortUpload);
    upload_->abort(answers_.abort());
    ASSERT_EQ(answers_.aborted.size(), 1U);
    EXPECT_FALSE(answers_.aborted[0]);
}

TEST_F(UploadTest, TheDestructorAbortsAndNeverCompletes) {
    send(1, "one");
    EXPECT_EQ(store_.open_uploads(), 1);
    upload_.reset();
    EXPECT_EQ(store_.open_uploads(), 0);
    EXPECT_FALSE(store_.exists("dir/file"));
}

}  // namespace
}  // namespace ckptfs
