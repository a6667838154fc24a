// SPDX-License-Identifier: Apache-2.0
#include "s3/copy_condition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "s3/s3_store.h"
#include "s3/version_pin.h"
#include "support/inline_executor.h"
#include "support/manual_clock.h"
#include "support/no_credentials.h"
#include "support/scripted_transport.h"
#include "support/stepped_timer.h"

namespace ckptfs::s3 {

using namespace testing;
using ::testing::ElementsAre;
namespace {

const std::string kETag = "\"e\"";
const std::string kETagInParts = "\"e-3\"";

HttpResponse copied() {
    return {200, {}, "<CopyPartResult><ETag>\"part\"</ETag></CopyPartResult>"};
}

HttpResponse refused(int status, const std::string& code) {
    return {status, {}, "<Error><Code>" + code + "</Code></Error>"};
}

// A store with one object, which copies parts of it if the condition holds, or always.
class CopyConditions : public ::testing::Test {
protected:
    CopyConditions() {
        StoreConfig config;
        config.bucket = "bucket";
        config.no_sign_request = true;
        store_ = std::make_unique<S3Store>(
            config, Endpoint{"http", "store", "/bucket", "us-east-1"},
            S3Dependencies{transport_, timer_, clock_, executor_, credentials_, [] { return 0.5; }});
        transport_.answer_with([this](const HttpRequest& request) { return answer(request); });
    }

    HttpResponse answer(const HttpRequest& request) {
        if (request.method == "HEAD") {
            return {200,
                    {{"content-length", "1"}, {"etag", there_}, {"last-modified", "Sat, 01 Jan 2022 00:00:00 GMT"}},
                    ""};
        }
        const std::string wanted = header_of(request, kSourceIfMatch);
        const HttpResponse answered =
            ignores_ || wanted.empty() || wanted == there_ ? copied() : refused(412, "PreconditionFailed");
        if (answered.status == 200 && replaced_by_copies_) {
            there_ = "\"another\"";
        }
        return answered;
    }

    void start(const std::string& etag, StoreDone<UploadedPart> done) {
        UploadPartCopyRequest request;
        request.upload = {"target", "upload"};
        request.part_number = 7;
        request.source_key = "source";
        request.source_if_match = etag;
        request.range = ByteRange{100, 50};
        store_->upload_part_copy(request, std::move(done));
    }
    Result<UploadedPart> copy(const std::string& etag) {
        std::optional<Result<UploadedPart>> answer;
        start(etag, [&answer](Result<UploadedPart> part) { answer = std::move(part); });
        while (!answer && timer_.waiting() > 0) {
            clock_.move(timer_.run());
        }
        return answer ? std::move(*answer) : failure(ETIMEDOUT, "never answered");
    }

    // The requests since the last call: the range and the condition of copies.
    std::vector<std::string> sent() {
        std::vector<std::string> requests;
        const std::vector<HttpRequest> asked = transport_.asked();
        for (; seen_ < asked.size(); ++seen_) {
            const HttpRequest& request = asked[seen_];
            requests.push_back(request.method == "HEAD" ? "HEAD"
                                                        : header_of(request, "x-amz-copy-source-range") + ' ' +
                                                              header_of(request, kSourceIfMatch));
        }
        return requests;
    }

    std::string there_ = kETag;
    bool ignores_ = false;
    bool replaced_by_copies_ = false;
    bool is_first_ = true;
    std::size_t seen_ = 0;
    ManualClock clock_;
    SteppedTimer timer_;
    InlineExecutor executor_;
    NoCredentials credentials_;
    ScriptedTransport transport_;
    std::unique_ptr<S3Store> store_;
};

const std::string kAsked = "bytes=100-149 \"00000000000000000000000000000000\"";

TEST_F(CopyConditions, IsAskedForOnceWhereItIsHeeded) {
    EXPECT_TRUE(copy(kETag));
    EXPECT_THAT(sent(), ElementsAre(kAsked, "bytes=100-149 " + kETag));
    EXPECT_TRUE(copy(kETag));
    there_ = "\"another\"";
    EXPECT_EQ(copy(kETag).error().errno_value, ESTALE);
    EXPECT_THAT(sent(), ElementsAre("bytes=100-149 " + kETag, "bytes=100-149 " + kETag, "HEAD"));
}

TEST_F(CopyConditions, WhereItIsIgnoredTheVersionIsLookedAtBeforeAndAfter) {
    ignores_ = true;
    EXPECT_TRUE(copy(kETag));
    EXPECT_THAT(sent(), ElementsAre(kAsked, "HEAD", "bytes=100-149 ", "HEAD"));
    EXPECT_TRUE(copy(kETag));
    EXPECT_THAT(sent(), ElementsAre("HEAD", "bytes=100-149 ", "HEAD"));
    replaced_by_copies_ = true;
    EXPECT_FALSE(copy(kETag)) << "replaced while it was copied";
    EXPECT_THAT(sent(), ElementsAre("HEAD", "bytes=100-149 ", "HEAD"));
    EXPECT_EQ(copy(kETag).error().errno_value, ESTALE);
    EXPECT_THAT(sent(), ElementsAre("HEAD"));
}

TEST_F(CopyConditions, WhatIsFoundOfASourceHoldsForThoseUploadedInParts) {
    ignores_ = true;
    there_ = kETagInParts;
    EXPECT_TRUE(copy(kETagInParts));
    EXPECT_THAT(sent(),
                ElementsAre("bytes=100-149 \"00000000000000000000000000000000-1\"", "HEAD", "bytes=100-149 ", "HEAD"));
    there_ = kETag;
    EXPECT_TRUE(copy(kETag));
    EXPECT_THAT(sent(), ElementsAre("HEAD", "bytes=100-149 ", "HEAD"));
}

TEST_F(CopyConditions, AnAnswerThatSaysNothingOfItLeavesItToTheNextCopy) {
    transport_.answer_with([](const HttpRequest&) { return refused(404, "NoSuchUpload"); });
    EXPECT_EQ(copy(kETag).error().s3_code, "NoSuchUpload");
    EXPECT_THAT(sent(), ElementsAre(kAsked, "bytes=100-149 " + kETag));
    transport_.answer_with([this](const HttpRequest& request) { return answer(request); });
    ignores_ = true;
    EXPECT_TRUE(copy(kETag));
    EXPECT_THAT(sent(), ElementsAre(kAsked, "HEAD", "bytes=100-149 ", "HEAD"));
}

TEST_F(CopyConditions, NothingIsCopiedWhereTheStoreCannotBeAsked) {
    transport_.answer_with([this](const HttpRequest& request) {
        return header_of(request, kSourceIfMatch) == kETag ? answer(request) : refused(503, "ServiceUnavailable");
    });
    EXPECT_FALSE(copy(kETag));
    for (const std::string& request : sent()) {
        EXPECT_EQ(request, kAsked);
    }
}

TEST_F(CopyConditions, OfMoreAtOnceOneAsks) {
    std::vector<Result<UploadedPart>> parts;
    transport_.answer_with([&](const HttpRequest& request) {
        // While the first is asked.
        if (request.method == "PUT" && std::exchange(is_first_, false)) {
            for (int part = 0; part < 3; ++part) {
                start(kETag, [&parts](Result<UploadedPart> copied) { parts.push_back(std::move(copied)); });
            }
        }
        return answer(request);
    });
    EXPECT_TRUE(copy(kETag));
    const std::string real = "bytes=100-149 " + kETag;
    EXPECT_THAT(sent(), ElementsAre(kAsked, real, real, real, real));
    EXPECT_EQ(parts.size(), 3U);
}

}  // namespace
}  // namespace ckptfs::s3
