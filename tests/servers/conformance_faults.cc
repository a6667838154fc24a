// SPDX-License-Identifier: Apache-2.0
// The client against a server that fails on purpose (s3sim only).
#include <gmock/gmock.h>

#include <algorithm>
#include <future>

#include "servers/server_under_test.h"

namespace ckptfs {
namespace {

using ::testing::HasSubstr;

class Faults : public ServerTest {
protected:
    static std::string rule(const std::string& operation, const std::string& action, const std::string& more = "") {
        return R"([{"op": ")" + operation + R"(", "action": ")" + action + "\"" + (more.empty() ? "" : ", " + more) +
               "}]";
    }
    static constexpr const char* kOnce = R"("times": 1)";

    Result<PutResponse> upload(const std::string& name, const std::string& content, const std::string& write_id) {
        const UploadId upload_id = create_upload(name, {{kWriteIdMetadata, write_id}});
        const auto part = upload_part(upload_id, 1, content);
        if (!part) {
            return failure(part.error());
        }
        CompleteRequest request;
        request.upload = upload_id;
        request.parts = {*part};
        request.write_id = write_id;
        return store_->complete_upload(std::move(request));
    }
};

struct PassingFault {
    const char* action;
    const char* more;
};

class PassingFaults : public Faults, public ::testing::WithParamInterface<PassingFault> {
protected:
    std::string once(const std::string& operation) const {
        const std::string more = GetParam().more;
        return rule(operation, GetParam().action, std::string(kOnce) + (more.empty() ? "" : ", " + more));
    }
};

TEST_P(PassingFaults, AreGotOver) {
    StoreConfig config = default_config();
    config.stall_timeout = std::chrono::milliseconds(500);
    reopen(config);
    const std::string bytes = sample_bytes(2'000'000);
    inject(once("PutObject"));
    const auto written = put("file", bytes, {{kWriteIdMetadata, "w1"}});
    ASSERT_TRUE(written.has_value()) << written.error().message;
    inject(once("GetObject"));
    EXPECT_EQ(content("file"), bytes);
    inject(once("HeadObject"));
    EXPECT_TRUE(store_->head(key("file")).has_value());
    inject(once("ListObjectsV2"));
    EXPECT_EQ(listed().size(), 1U);
    inject(once("UploadPart"));
    inject(once("CompleteMultipartUpload"));
    const auto uploaded = upload("large", bytes, "w2");
    ASSERT_TRUE(uploaded.has_value()) << uploaded.error().message;
    EXPECT_EQ(content("large"), bytes);
    inject(once("CopyObject"));
    CopyRequest copy;
    copy.source_key = key("file");
    copy.key = key("copy");
    EXPECT_TRUE(store_->copy(copy).has_value());
    inject(once("DeleteObjects"));
    EXPECT_TRUE(store_->remove_many({key("file"), key("copy")}).has_value());
    inject(once("DeleteObject"));
    EXPECT_TRUE(store_->remove(key("large")).has_value());
}

INSTANTIATE_TEST_SUITE_P(All, PassingFaults,
                         ::testing::Values(PassingFault{"500", ""}, PassingFault{"503", ""},
                                           PassingFault{"slowdown", ""}, PassingFault{"request-timeout", ""},
                                           PassingFault{"reset", ""}, PassingFault{"close", ""},
                                           PassingFault{"hang", ""}, PassingFault{"performed-but-500", ""},
                                           PassingFault{"performed-but-reply-lost", ""}, PassingFault{"conflict", ""}),
                         [](const auto& fault) {
                             std::string name = fault.param.action;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

TEST_F(Faults, ATruncatedReadGoesOnWhereItStopped) {
    const std::string bytes = sample_bytes(1'000'000);
    ASSERT_TRUE(put("file", bytes).has_value());
    inject(rule("GetObject", "truncate", R"("bytes": 100000, "times": 3)"));
    EXPECT_EQ(content("file"), bytes);
    EXPECT_EQ(s3_->statistics().retries, 3U);
}

TEST_F(Faults, AReadThatHangsGoesOnWhereItStopped) {
    StoreConfig config = default_config();
    config.stall_timeout = std::chrono::milliseconds(300);
    reopen(config);
    const std::string bytes = sample_bytes(1'000'000);
    ASSERT_TRUE(put("file", bytes).has_value());
    inject(rule("GetObject", "hang", R"("bytes": 100000, "times": 2)"));
    EXPECT_EQ(content("file"), bytes);
}

TEST_F(Faults, AReadOfAReplacedObjectIsStale) {
    ASSERT_TRUE(put("file", sample_bytes(1'000'000, 1)).has_value());
    inject(rule("GetObject", "truncate", R"("bytes": 100000, "times": 1)"));
    GetRequest request;
    request.key = key("file");
    std::size_t received = 0;
    bool replaced = false;
    std::promise<Result<GetResponse>> promise;
    auto answer = promise.get_future();
    request.on_body = [&](ByteSpan bytes) {
        received += bytes.size();
        if (!replaced) {
            replaced = true;
            // On an HTTP thread: asked for, not waited for; the resumed read comes later than the backoff.
            PutRequest other;
            other.key = key("file");
            other.body = Payload::from_string(sample_bytes(1'000'000, 2));
            s3_->put(std::move(other), [](Result<PutResponse>) {});
        }
        return true;
    };
    // The read resumes against whichever version is there by then; only a whole old one or ESTALE are right.
    s3_->get(std::move(request), [&](Result<GetResponse> result) { promise.set_value(std::move(result)); });
    const auto result = answer.get();
    if (result) {
        EXPECT_EQ(received, 1'000'000U);
    } else {
        EXPECT_EQ(result.error().errno_value, ESTALE) << result.error().message;
    }
}

TEST_F(Faults, ALostReplyOfACompleteIsSuccess) {
    inject(rule("CompleteMultipartUpload", "performed-but-reply-lost"));
    const auto written = upload("file", "hello", "w1");
    ASSERT_TRUE(written.has_value()) << written.error().message;
    EXPECT_EQ(written->etag, described("file").etag);
}

TEST_F(Faults, AnErrorAfterACompleteIsSuccess) {
    inject(rule("CompleteMultipartUpload", "performed-but-500"));
    EXPECT_TRUE(upload("file", "hello", "w1").has_value());
}

TEST_F(Faults, ALostReplyOfAConditionalPutIsSuccess) {
    inject(rule("PutObject", "performed-but-reply-lost"));
    PutRequest request;
    request.key = key("file");
    request.body = Payload::from_string("hello");
    request.metadata = {{kWriteIdMetadata, "w1"}};
    request.if_none_match = true;
    const auto written = store_->put(std::move(request));
    ASSERT_TRUE(written.has_value()) << written.error().message;
    EXPECT_EQ(content("file"), "hello");
}

TEST_F(Faults, AnotherWritersObjectIsNotOurs) {
    ASSERT_TRUE(put("file", "theirs", {{kWriteIdMetadata, "theirs"}}).has_value());
    inject(rule("CompleteMultipartUpload", "no-such-upload"));
    const auto written = upload("file", "ours", "ours");
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().s3_code, "NoSuchUpload");
    EXPECT_EQ(content("file"), "theirs");
}

TEST_F(Faults, AnErrorInsideA200IsAnError) {
    StoreConfig config = default_config();
    config.retry_for = std::chrono::milliseconds(300);
    reopen(config);
    inject(rule("CompleteMultipartUpload", "200-error"));
    const auto written = upload("file", "hello", "w1");
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().s3_code, "InternalError");
    EXPECT_EQ(written.error().errno_value, EIO);
    EXPECT_EQ(errno_of(store_->head(key("file"))), ENOENT);
    ASSERT_TRUE(put("source", "hello").has_value());
    inject(rule("CopyObject", "200-error"));
    CopyRequest copy;
    copy.source_key = key("source");
    copy.key = key("copy");
    EXPECT_FALSE(store_->copy(copy).has_value());
}

TEST_F(Faults, AnErrorInsideA200IsRetried) {
    inject(rule("CompleteMultipartUpload", "200-error", kOnce));
    EXPECT_TRUE(upload("file", "hello", "w1").has_value());
}

TEST_F(Faults, ACompleteThatSendsBlanksIsWaitedFor) {
    StoreConfig config = default_config();
    config.stall_timeout = std::chrono::milliseconds(300);
    reopen(config);
    inject(rule("CompleteMultipartUpload", "blanks", R"("ms": 2000)"));
    EXPECT_TRUE(upload("file", "hello", "w1").has_value());
}

TEST_F(Faults, ADamagedBodyIsNeverAccepted) {
    inject(rule("PutObject", "corrupt", R"("bytes": 3, "times": 1)"));
    ASSERT_TRUE(put("file", "hello").has_value());
    EXPECT_EQ(content("file"), "hello");
    inject(rule("PutObject", "corrupt", R"("bytes": 3)"));
    const auto written = put("other", "hello");
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().errno_value, EIO);
    EXPECT_EQ(errno_of(store_->head(key("other"))), ENOENT);
}

TEST_F(Faults, AStoreThatHangsIsGivenUpInTime) {
    StoreConfig config = default_config();
    config.stall_timeout = std::chrono::milliseconds(300);
    config.retry_for = std::chrono::milliseconds(1500);
    reopen(config);
    inject(rule("PutObject", "hang"));
    const auto begin = clock_.now();
    const auto written = put("file", "hello");
    const auto took = clock_.now() - begin;
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().errno_value, EIO);
    EXPECT_TRUE(written.error().outcome_unknown);
    EXPECT_THAT(written.error().message, HasSubstr("given up"));
    EXPECT_LT(took, std::chrono::seconds(3));
}

TEST_F(Faults, ARefusalIsNotRetried) {
    inject(rule("PutObject", "access-denied"));
    const auto written = put("file", "hello");
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().errno_value, EACCES);
    EXPECT_FALSE(written.error().request_id.empty());
    EXPECT_EQ(s3_->statistics().retries, 0U);
}

TEST_F(Faults, HeadLearnsTheCodeOfARefusal) {
    ASSERT_TRUE(put("file", "hello").has_value());
    inject(R"([{"op": "HeadObject", "action": "403"}, {"op": "GetObject", "action": "expired-token"}])");
    const auto object = store_->head(key("file"));
    ASSERT_FALSE(object.has_value());
    EXPECT_EQ(object.error().s3_code, "ExpiredToken");
    EXPECT_EQ(object.error().errno_value, EACCES);
}

TEST_F(Faults, AClockThatIsWrongIsCorrected) {
    administer_model(R"({"clock_offset_s": 7200})");
    const auto written = put("file", "hello");
    administer_model(R"({"clock_offset_s": 0})");
    ASSERT_TRUE(written.has_value()) << written.error().message;
    EXPECT_EQ(content("file"), "hello");
}

TEST_F(Faults, SlowDownLowersTheNumberOfRequests) {
    const int before = s3_->statistics().concurrency_limit;
    inject(rule("PutObject", "slowdown", kOnce));
    ASSERT_TRUE(put("file", "hello").has_value());
    EXPECT_EQ(s3_->statistics().slow_downs, 1U);
    EXPECT_LT(s3_->statistics().concurrency_limit, before);
}

TEST_F(Faults, ManyRequestsSurviveABadHour) {
    inject(R"([{"op": "PutObject", "action": "503", "every": 5}, {"op": "PutObject", "action": "reset", "every": 7}])");
    std::vector<std::future<Result<PutResponse>>> answers;
    for (int i = 0; i < 200; ++i) {
        auto promise = std::make_shared<std::promise<Result<PutResponse>>>();
        answers.push_back(promise->get_future());
        PutRequest request;
        request.key = key(std::to_string(i));
        request.body = Payload::from_string(std::to_string(i));
        s3_->put(std::move(request), [promise](Result<PutResponse> result) { promise->set_value(std::move(result)); });
    }
    for (auto& answer : answers) {
        const auto result = answer.get();
        EXPECT_TRUE(result.has_value()) << result.error().message;
    }
    EXPECT_EQ(listed().size(), 200U);
}

TEST_F(Faults, TheStoreEndsWithWorkUnderWay) {
    inject(rule("PutObject", "hang"));
    std::vector<std::future<Result<PutResponse>>> answers;
    for (int i = 0; i < 100; ++i) {
        auto promise = std::make_shared<std::promise<Result<PutResponse>>>();
        answers.push_back(promise->get_future());
        PutRequest request;
        request.key = key(std::to_string(i));
        request.body = Payload::from_string("hello");
        s3_->put(std::move(request), [promise](Result<PutResponse> result) { promise->set_value(std::move(result)); });
    }
    s3_.reset();
    for (auto& answer : answers) {
        const auto result = answer.get();
        ASSERT_FALSE(result.has_value());
        EXPECT_EQ(result.error().errno_value, ECANCELED);
    }
}

}  // namespace
}  // namespace ckptfs
