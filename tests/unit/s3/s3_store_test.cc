// SPDX-License-Identifier: Apache-2.0
#include "s3/s3_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/inline_executor.h"
#include "support/manual_clock.h"
#include "support/no_credentials.h"
#include "support/scripted_transport.h"
#include "support/stepped_timer.h"

namespace ckptfs::s3 {

using namespace testing;
namespace {

HttpResponse refusal(int status, const std::string& code) {
    return {status, {}, "<Error><Code>" + code + "</Code></Error>"};
}

// The store says that it holds other bytes than those it was sent.
HttpResponse damaged_as(const std::string& etag) {
    return {200, {{"etag", etag}, {"x-amz-checksum-crc32c", "AAAAAA=="}}, ""};
}

HttpResponse written_as(const std::string& etag) {
    return {200,
            {{"content-length", "5"},
             {"etag", etag},
             {"last-modified", "Sat, 01 Jan 2022 00:00:00 GMT"},
             {std::string("x-amz-meta-") + kWriteIdMetadata, "this write"}},
            ""};
}

class Attempts final : public AttemptObserver {
public:
    void ended(const Attempt& attempt) override { unknown.push_back(attempt.outcome_unknown); }

    std::vector<bool> unknown;
};

class Store : public ::testing::Test {
protected:
    Store() {
        StoreConfig config;
        config.bucket = "bucket";
        config.no_sign_request = true;
        store_ = std::make_unique<S3Store>(
            config, Endpoint{"http", "store", "/bucket", "us-east-1"},
            S3Dependencies{transport_, timer_, clock_, executor_, credentials_, [] { return 0.5; }, {&attempts_}});
    }

    Result<PutResponse> create(const std::function<bool()>& may_send = nullptr) {
        PutRequest request;
        request.may_send = may_send;
        request.key = "a";
        request.body = Payload::from_string("bytes");
        request.metadata.emplace(kWriteIdMetadata, "this write");
        request.if_none_match = true;
        std::optional<Result<PutResponse>> answer;
        store_->put(std::move(request), [&answer](Result<PutResponse> put) { answer = std::move(put); });
        return awaited(answer);
    }
    Result<ListResponse> list(const std::string& token, const std::string& prefix = "", int max_keys = 1000) {
        ListRequest request;
        request.max_keys = max_keys;
        request.prefix = prefix;
        request.continuation_token = token;
        std::optional<Result<ListResponse>> answer;
        store_->list(std::move(request), [&answer](Result<ListResponse> page) { answer = std::move(page); });
        return awaited(answer);
    }
    Result<PutResponse> copy(const std::function<bool()>& may_send) {
        CopyRequest request;
        request.source_key = "a";
        request.key = "b";
        request.may_send = may_send;
        std::optional<Result<PutResponse>> answer;
        store_->copy(std::move(request), [&answer](Result<PutResponse> copied) { answer = std::move(copied); });
        return awaited(answer);
    }
    Result<PutResponse> complete(const std::function<bool()>& may_send, bool if_none_match = false) {
        CompleteRequest request{{"b", "upload"}, {}, "this write", 5};
        request.if_none_match = if_none_match;
        request.may_send = may_send;
        std::optional<Result<PutResponse>> answer;
        store_->complete_upload(std::move(request), [&answer](Result<PutResponse> done) { answer = std::move(done); });
        return awaited(answer);
    }
    Result<UploadId> begin_upload() {
        CreateUploadRequest request;
        request.key = "b";
        std::optional<Result<UploadId>> answer;
        store_->create_upload(std::move(request), [&answer](Result<UploadId> upload) { answer = std::move(upload); });
        return awaited(answer);
    }
    // The answers to the first PUT, to those after it, and to HEAD.
    void answer_with(HttpResponse first, HttpResponse later, HttpResponse look) {
        transport_.answer_with([first = std::move(first), later = std::move(later), look = std::move(look),
                                is_first = true](const HttpRequest& request) mutable {
            if (request.method == "HEAD") {
                return look;
            }
            return std::exchange(is_first, false) ? first : later;
        });
    }
    [[nodiscard]] int puts() const {
        int count = 0;
        for (const HttpRequest& request : transport_.asked()) {
            count += request.method == "PUT" || request.method == "POST" ? 1 : 0;
        }
        return count;
    }

    Attempts attempts_;
    ManualClock clock_;
    SteppedTimer timer_;
    InlineExecutor executor_;
    NoCredentials credentials_;
    ScriptedTransport transport_;
    std::unique_ptr<S3Store> store_;

private:
    template <class Answer>
    Answer awaited(std::optional<Answer>& answer) {
        while (!answer && timer_.waiting() > 0) {
            clock_.move(timer_.run());
        }
        return std::move(answer.value());
    }
};

// The object that is in the way of the second attempt is the damaged one of the first.
TEST_F(Store, ADamagedObjectIsNoSuccessWhereItCannotBeReplaced) {
    answer_with(damaged_as("\"damaged\""), refusal(412, "PreconditionFailed"), written_as("\"damaged\""));
    const Result<PutResponse> created = create();
    ASSERT_FALSE(created);
    EXPECT_EQ(created.error().errno_value, EIO);
    EXPECT_NE(created.error().message.find("the store's checksum AAAAAA== differs"), std::string::npos);
    EXPECT_EQ(puts(), 2);
}

// It is what the failure of its file is known by.
TEST_F(Store, WhatWasDamagedMayBeThereThoughTheSecondAttemptIsRefused) {
    answer_with(damaged_as("\"damaged\""), refusal(403, "AccessDenied"), written_as("\"damaged\""));
    const Result<PutResponse> created = create();
    ASSERT_FALSE(created);
    EXPECT_TRUE(created.error().outcome_unknown);
}

TEST_F(Store, ADamagedObjectWithoutAnETagIsNoSuccessEither) {
    answer_with(damaged_as(""), refusal(412, "PreconditionFailed"), written_as("\"damaged\""));
    const Result<PutResponse> created = create();
    ASSERT_FALSE(created);
    EXPECT_EQ(created.error().errno_value, EIO);
}

TEST_F(Store, ADamagedObjectIsNoSuccessWhereItIsDescribedWithoutAnETag) {
    answer_with(damaged_as("\"damaged\""), refusal(412, "PreconditionFailed"), written_as(""));
    const Result<PutResponse> created = create();
    ASSERT_FALSE(created);
    EXPECT_EQ(created.error().errno_value, EIO);
}

TEST_F(Store, WhatALostAnswerHasPutInThePlaceOfADamagedObjectIsASuccess) {
    answer_with(damaged_as("\"damaged\""), refusal(500, "InternalError"), written_as("\"whole\""));
    const Result<PutResponse> created = create();
    ASSERT_TRUE(created);
    EXPECT_EQ(created->etag, "\"whole\"");
    EXPECT_EQ(puts(), 2);
}

TEST_F(Store, AnotherMountsObjectIsInTheWayOfASecondAttempt) {
    HttpResponse another = written_as("\"another\"");
    another.headers.pop_back();
    answer_with(damaged_as("\"damaged\""), refusal(412, "PreconditionFailed"), another);
    const Result<PutResponse> created = create();
    ASSERT_FALSE(created);
    EXPECT_EQ(created.error().errno_value, EEXIST);
}

TEST_F(Store, APageThatLeadsToItselfIsAnError) {
    transport_.answer_with(200,
                           "<ListBucketResult><IsTruncated>true</IsTruncated>"
                           "<NextContinuationToken>t</NextContinuationToken></ListBucketResult>");
    const Result<ListResponse> page = list("");
    ASSERT_FALSE(page);
    EXPECT_EQ(page.error().errno_value, EPROTO);
    EXPECT_EQ(transport_.asked().size(), 2U);
}

// As with many deleted keys in a bucket with versions. Some callers ask only whether anything is there.
TEST_F(Store, AShortPageIsTheEndOfAList) {
    const auto page_with = [](const std::string& content, const std::string& next) {
        return HttpResponse{200,
                            {},
                            "<ListBucketResult>" + content +
                                (next.empty() ? ""
                                              : "<IsTruncated>true</IsTruncated><NextContinuationToken>" + next +
                                                    "</NextContinuationToken>") +
                                "</ListBucketResult>"};
    };
    transport_.answer_with([&, asked = 0](const HttpRequest&) mutable {
        ++asked;
        return asked == 1   ? page_with("", "1")
               : asked == 2 ? page_with("<Contents><Key>d/</Key><Size>0</Size></Contents>", "2")
                            : page_with("<Contents><Key>d/f</Key><Size>1</Size></Contents>", "3");
    });
    const Result<ListResponse> page = list("", "d/", 2);
    ASSERT_TRUE(page) << page.error().message;
    ASSERT_EQ(page->objects.size(), 2U);
    EXPECT_EQ(page->objects.back().key, "d/f");
    EXPECT_EQ(page->next_continuation_token, "3");
    EXPECT_EQ(transport_.asked().size(), 3U);
    EXPECT_NE(transport_.asked().back().url.find("max-keys=1"), std::string::npos) << transport_.asked().back().url;
}

// As through a proxy that cuts off a part of the path: callers take the prefix off each key.
TEST_F(Store, AListOfKeysThatAreNotBelowItsPrefixIsNoList) {
    const std::string key = "<Contents><Key>run/a</Key><Size>1</Size></Contents>";
    const std::string directory = "<CommonPrefixes><Prefix>run/b/</Prefix></CommonPrefixes>";
    transport_.answer_with(200, "<ListBucketResult>" + key + directory + "</ListBucketResult>");
    EXPECT_TRUE(list("", "run/"));
    EXPECT_EQ(list("", "jobs/run/").error().errno_value, EPROTO);
    for (const std::string& foreign : {std::string("<Contents><Key>a</Key><Size>1</Size></Contents>"),
                                       std::string("<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes>")}) {
        transport_.answer_with(200, "<ListBucketResult>" + key + foreign + "</ListBucketResult>");
        const Result<ListResponse> page = list("", "run/");
        ASSERT_FALSE(page);
        EXPECT_EQ(page.error().errno_value, EPROTO);
        EXPECT_NE(page.error().message.find("not below run/"), std::string::npos) << page.error().message;
    }
}

TEST_F(Store, ARequestThatAProxyLostMayHaveTakenEffect) {
    const HttpResponse lost{503, {}, "upstream connect error or disconnect/reset before headers"};
    answer_with(lost, written_as("\"again\""), written_as("\"whole\""));
    const Result<PutResponse> created = create();
    ASSERT_TRUE(created);
    EXPECT_EQ(created->etag, "\"whole\"");
    EXPECT_EQ(puts(), 1);
    attempts_.unknown.clear();
    const HttpResponse begun{
        200, {}, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"};
    answer_with(lost, begun, refusal(404, "NoSuchKey"));
    EXPECT_TRUE(begin_upload());
    EXPECT_EQ(attempts_.unknown, (std::vector<bool>{true, false}));
}

TEST_F(Store, AConditionThatFailsInsideASuccessMayHaveFailedForTheCommitItself) {
    answer_with(refusal(200, "PreconditionFailed"), written_as("\"again\""), written_as("\"whole\""));
    const Result<PutResponse> completed = complete(nullptr);
    ASSERT_TRUE(completed);
    EXPECT_EQ(completed->etag, "\"whole\"");
    EXPECT_EQ(puts(), 1);
}

TEST_F(Store, AnotherMountsObjectIsInTheWayOfAnUploadThatTheStoreHasEnded) {
    HttpResponse another = written_as("\"another\"");
    another.headers.pop_back();
    for (const bool if_none_match : {true, false}) {
        answer_with(refusal(409, "ConditionalRequestConflict"), refusal(404, "NoSuchUpload"), another);
        const Result<PutResponse> completed = complete(nullptr, if_none_match);
        ASSERT_FALSE(completed);
        EXPECT_EQ(completed.error().errno_value, if_none_match ? EEXIST : EIO);
        EXPECT_FALSE(completed.error().outcome_unknown);
    }
    answer_with(refusal(409, "ConditionalRequestConflict"), refusal(404, "NoSuchUpload"), refusal(404, ""));
    EXPECT_EQ(complete(nullptr, true).error().errno_value, EIO);
}

// The commit itself is not tried again before its key was looked at.
TEST_F(Store, AnOutageThatBeginsDuringACommitIsGivenUpAsAnyOther) {
    transport_.answer_with([](const HttpRequest& request) -> Result<HttpResponse> {
        Error error;
        error.retryable = true;
        error.errno_value = request.method == "HEAD" ? ECONNREFUSED : ETIMEDOUT;
        error.outcome_unknown = request.method != "HEAD";
        error.message = request.method == "HEAD" ? "nobody listens" : "no byte moved";
        return failure(std::move(error));
    });
    for (const Result<PutResponse>& answer : {create(), complete(nullptr)}) {
        ASSERT_FALSE(answer);
        EXPECT_EQ(answer.error().errno_value, EIO);
        EXPECT_TRUE(answer.error().outcome_unknown);
        for (const char* words : {"no byte moved", "nobody listens", "given up after"}) {
            EXPECT_NE(answer.error().message.find(words), std::string::npos) << answer.error().message;
        }
    }
    EXPECT_EQ(puts(), 2);
}

// Whoever asked for it may be overtaken by another mount while it waits to be tried again.
TEST_F(Store, ACopyThatIsNoLongerWantedIsNotSentAgain) {
    bool wanted = true;
    transport_.answer_with([&wanted](const HttpRequest& request) {
        wanted = false;
        return request.method == "HEAD" ? refusal(404, "NoSuchKey") : refusal(500, "InternalError");
    });
    const auto may_send = [&wanted] { return wanted; };
    EXPECT_EQ(copy(may_send).error().errno_value, EIO);
    EXPECT_EQ(puts(), 1);
    wanted = true;
    EXPECT_EQ(complete(may_send).error().errno_value, EIO);
    EXPECT_EQ(puts(), 2);
    wanted = true;
    EXPECT_EQ(create(may_send).error().errno_value, EIO);
    EXPECT_EQ(puts(), 3);
    EXPECT_FALSE(copy(may_send)) << "not wanted from the beginning";
    EXPECT_FALSE(complete(may_send));
    EXPECT_FALSE(create(may_send));
    EXPECT_EQ(puts(), 3);
}

// Else libcurl may send it twice as one attempt, and the answer to the second is taken for that to the first.
TEST_F(Store, WhatChangesTheStoreIsSentOnceAnAttempt) {
    transport_.answer_with([](const HttpRequest&) { return refusal(403, "AccessDenied"); });
    create();
    copy(nullptr);
    begin_upload();
    complete(nullptr);
    store_->remove({"a"}, [](const Status&) {});
    store_->remove_many({{"a"}}, [](const auto&) {});
    store_->abort_upload({"a", "upload"}, [](const Status&) {});
    UploadPartCopyRequest part_copy;
    part_copy.upload = {"a", "upload"};
    store_->upload_part_copy(part_copy, [](const auto&) {});
    for (const HttpRequest& request : transport_.asked()) {
        EXPECT_TRUE(request.is_sent_once) << request.method << ' ' << request.url;
    }
    ASSERT_EQ(transport_.asked().size(), 8U);
    UploadPartRequest part;
    part.upload = {"a", "upload"};
    store_->upload_part(part, [](const auto&) {});
    store_->head("a", [](const auto&) {});
    list("");
    for (std::size_t each = 8; each < transport_.asked().size(); ++each) {
        EXPECT_FALSE(transport_.asked()[each].is_sent_once) << each;
    }
    EXPECT_EQ(transport_.asked().size(), 11U);
}

// Ceph's gateway decodes the source's key twice, and aborts where it cannot.
TEST_F(Store, NoPartIsCopiedFromAKeyWithAPercentSign) {
    transport_.answer_with([](const HttpRequest&) { return refusal(404, "NoSuchUpload"); });
    UploadPartCopyRequest part;
    part.upload = {"copy", "upload"};
    part.source_key = "50%";
    std::optional<Result<UploadedPart>> copied;
    store_->upload_part_copy(part, [&copied](Result<UploadedPart> result) { copied = std::move(result); });
    ASSERT_TRUE(copied && !*copied);
    EXPECT_EQ(copied->error().errno_value, EOPNOTSUPP);
    EXPECT_TRUE(transport_.asked().empty());
    // Looking for the operation names no such source either.
    bool found = false;
    store_->find_part_copy("50%", [&found] { found = true; });
    EXPECT_TRUE(found);
    ASSERT_EQ(transport_.asked().size(), 1U);
    const auto headers = transport_.asked()[0].headers;
    const auto source = std::find_if(headers.begin(), headers.end(),
                                     [](const auto& header) { return header.first == "x-amz-copy-source"; });
    ASSERT_NE(source, headers.end());
    EXPECT_EQ(source->second, "/bucket/50-");
}

// Which of them it is known by is found out by a second list.
TEST_F(Store, UploadsAreListedAsTheyAreWhereTheStoreDoesNotSayHow) {
    transport_.answer_with([](const HttpRequest& request) -> Result<HttpResponse> {
        const bool encoded = request.url.find("encoding-type=url") != std::string::npos;
        return HttpResponse{200,
                            {},
                            std::string("<ListMultipartUploadsResult><Upload><Key>") + (encoded ? "x%20y" : "x y") +
                                "</Key><UploadId>u</UploadId></Upload></ListMultipartUploadsResult>"};
    });
    std::optional<Result<std::vector<OpenUpload>>> uploads;
    store_->list_uploads("", [&uploads](auto listed) { uploads = std::move(listed); });
    ASSERT_TRUE(uploads && *uploads);
    ASSERT_EQ((*uploads)->size(), 1U);
    EXPECT_EQ((*uploads)->front().upload.key, "x y");
    EXPECT_EQ(transport_.asked().size(), 2U);
}

// A kept connection that ends without an answer costs a look, and is no error.
TEST_F(Store, ARequestThatAKeptConnectionLeftUnansweredIsSentAgainAfterALook) {
    bool is_first = true;
    transport_.answer_with([&is_first](const HttpRequest& request) -> Result<HttpResponse> {
        if (request.method == "HEAD") {
            return HttpResponse{404, {}, ""};
        }
        if (std::exchange(is_first, false)) {
            Error error;
            error.errno_value = ECONNRESET;
            error.retryable = true;
            error.outcome_unknown = true;
            return failure(std::move(error));
        }
        return written_as("\"again\"");
    });
    EXPECT_TRUE(create());
    EXPECT_EQ(puts(), 2);
    EXPECT_EQ(transport_.asked().size(), 3U);
    is_first = true;
    std::optional<Status> removed;
    store_->remove({"a", "\"x\""}, [&removed](Status status) { removed = std::move(status); });
    clock_.move(timer_.run());
    EXPECT_TRUE(removed.value());
}

}  // namespace
}  // namespace ckptfs::s3
