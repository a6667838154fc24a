// SPDX-License-Identifier: Apache-2.0
#include "fs/objects/object_copy.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <future>
#include <string>
#include <vector>

#include "fs/objects/copy_ranges.h"
#include "fs/objects/tree_copy.h"
#include "support/fake_store.h"
#include "support/pattern.h"

namespace ckptfs::fs {

using namespace testing;
namespace {

class ObjectCopyTest : public ::testing::Test {
protected:
    ObjectCopyTest() { store_.put_object("p/old", content_); }

    Result<Copied> copy() { return copy_object(store_, "p/old", "p/new", CopyOptions{}); }
    void refuse_parts(const std::string& s3_code) {
        Fault fault;
        fault.operation = Operation::kUploadPartCopy;
        fault.error = store_error(EIO, s3_code, 404);
        fault.times = 100;
        store_.inject(fault);
    }

    // Copied in two parts.
    const std::string content_ = pattern(kMultipartCopyThreshold);
    FakeStore store_;
};

TEST_F(ObjectCopyTest, OneWhoseUploadAnotherClientEndsIsBegunAnew) {
    store_.hold(Operation::kUploadPartCopy);
    auto copied = std::async(std::launch::async, [&] { return copy(); });
    ASSERT_TRUE(store_.wait_until_held(Operation::kUploadPartCopy, 2));
    store_.list_uploads("p/", [&](const Result<std::vector<OpenUpload>>& open) {
        store_.abort_upload(open.value().at(0).upload, [](const Status& ended) { EXPECT_TRUE(ended); });
    });
    store_.release(Operation::kUploadPartCopy);
    const Result<Copied> result = copied.get();
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->copy.etag, store_.info("p/new").etag);
    EXPECT_TRUE(store_.content("p/new") == content_);
    EXPECT_EQ(store_.calls(Operation::kCreateUpload), 2);
    EXPECT_EQ(store_.open_uploads(), 0);
}

// Else neither the copy nor the removal of its source that follows would be that of one version.
TEST_F(ObjectCopyTest, IsOfAVersionThatAListTellsWhereADescriptionDoesNot) {
    store_.describe_without_etags();
    const Result<Copied> result = copy();
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->source_etag, store_.info("p/old").etag);
    EXPECT_NE(result->source_etag, "");
}

TEST_F(ObjectCopyTest, OneWhoseUploadsAreEndedAgainAndAgainFails) {
    refuse_parts("NoSuchUpload");
    const Result<Copied> result = copy();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().s3_code, "NoSuchUpload");
    EXPECT_EQ(store_.calls(Operation::kCreateUpload), 4);
    EXPECT_EQ(store_.open_uploads(), 0);
    EXPECT_FALSE(store_.exists("p/new"));
}

TEST_F(ObjectCopyTest, OneWhoseUploadIsEndedBeforeItsCompletionFails) {
    store_.hold(Operation::kCompleteUpload);
    auto copied = std::async(std::launch::async, [&] { return copy(); });
    ASSERT_TRUE(store_.wait_until_held(Operation::kCompleteUpload, 1));
    store_.list_uploads("p/", [&](const Result<std::vector<OpenUpload>>& open) {
        store_.abort_upload(open.value().at(0).upload, [](const Status& ended) { EXPECT_TRUE(ended); });
    });
    store_.release(Operation::kCompleteUpload);
    const Result<Copied> result = copied.get();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().errno_value, EIO);
    EXPECT_EQ(store_.calls(Operation::kCreateUpload), 1);
    EXPECT_FALSE(store_.exists("p/new"));
    EXPECT_TRUE(store_.exists("p/old"));
}

TEST_F(ObjectCopyTest, OneThatFailsForAnotherReasonIsNotBegunAnew) {
    refuse_parts("InternalError");
    EXPECT_FALSE(copy());
    EXPECT_EQ(store_.calls(Operation::kCreateUpload), 1);
    EXPECT_EQ(store_.open_uploads(), 0);
}

// The reply was lost, and before the next attempt another mount removed the source.
TEST_F(ObjectCopyTest, OneThatWasMadeBeforeItsSourceWentIsRecognised) {
    for (const bool is_made : {true, false}) {
        store_.put_object("p/small", is_made ? "text" : "other", {{kWriteIdMetadata, is_made ? "1" : "2"}});
        Error gone = store_error(ENOENT, "NoSuchKey", 404);
        gone.outcome_unknown = true;
        store_.inject({Operation::kCopy, "p/copy", gone, 0, 1, is_made});
        CopyOptions options;
        options.known = store_.info("p/small");
        const Result<Copied> copied = copy_object(store_, "p/small", "p/copy", options);
        ASSERT_TRUE(copied);
        EXPECT_EQ(copied->copy.etag, store_.info("p/copy").etag);
        EXPECT_EQ(store_.calls(Operation::kCopy), is_made ? 1 : 2) << "what has the name by now is copied";
        store_.reset_calls();
    }
}

TEST_F(ObjectCopyTest, OneThatWasReplacedSinceItWasListedIsNotedAsWhatWasCopied) {
    const ObjectInfo listed = store_.info("p/old");
    store_.put_object("p/old", content_);
    OwnCopies own;
    DirectoryMarker rename;
    rename.source = "p/old";
    rename.destination = "p/new";
    ASSERT_TRUE(copy_tree(
        store_, {listed}, rename, [] { return true; }, own));
    ASSERT_TRUE(own.made.contains("p/old"));
    EXPECT_NE(own.made.at("p/old").source_etag, listed.etag);
    EXPECT_EQ(own.made.at("p/old").source_etag, store_.info("p/old").etag);
}

}  // namespace
}  // namespace ckptfs::fs
