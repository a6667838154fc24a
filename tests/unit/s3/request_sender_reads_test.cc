// SPDX-License-Identifier: Apache-2.0
// Reads that hang while others are answered.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "s3/get_operation.h"
#include "s3/head_operation.h"
#include "s3/request_sender.h"
#include "s3/s3_store.h"
#include "support/inline_executor.h"
#include "support/no_credentials.h"
#include "support/scripted_transport.h"
#include "support/simulated_time.h"

namespace ckptfs::s3 {

using namespace testing;
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kSize = 10;

// Keeps what it is asked until the test answers it; or it is canceled, or stalls.
class HeldTransport final : public HttpTransport {
public:
    explicit HeldTransport(SimulatedTime& time) : time_(time) {}

    Id send(HttpRequest request, Done done) override {
        const Id id = ++sent_;
        time_.after(request.stall_timeout, [this, id] { end(id, stalled()); });
        held_.emplace(id, Held{std::move(request), std::move(done)});
        return id;
    }
    void cancel(Id id) override {
        canceled += held_.contains(id) ? 1 : 0;
        end(id, failure(ECANCELED, "canceled"));
    }
    [[nodiscard]] HttpStatistics statistics() const override { return {}; }

    // The last that was sent.
    [[nodiscard]] Id last() const { return sent_; }
    [[nodiscard]] bool holds(Id id) const { return held_.contains(id); }
    [[nodiscard]] std::string range_of(Id id) const { return header_of(held_.at(id).request, "range"); }

    void answer_list(Id id) {
        end(id, HttpResponse{200, {}, "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"});
    }
    void answer_head(Id id) { end(id, head("0-9")); }
    // The bytes from `first` on, of which only so many come for now.
    void begin_body(Id id, std::uint64_t first, std::uint64_t count) {
        const HttpRequest& request = held_.at(id).request;
        ASSERT_TRUE(request.on_head(head(std::to_string(first) + "-9")));
        ASSERT_TRUE(request.on_body(as_bytes(std::string("0123456789").substr(first, count))));
    }
    void answer_body(Id id, std::uint64_t first) {
        begin_body(id, first, kSize - first);
        end(id, head(std::to_string(first) + "-9"));
    }

    int canceled = 0;

private:
    struct Held {
        HttpRequest request;
        Done done;
    };
    static HttpResponse head(const std::string& range) {
        return {206,
                {{"content-range", "bytes " + range + "/10"},
                 {"etag", "\"one\""},
                 {"last-modified", "Sat, 01 Jan 2022 00:00:00 GMT"}},
                ""};
    }
    static Failure stalled() {
        Error error;
        error.errno_value = ETIMEDOUT;
        error.retryable = true;
        error.message = "no byte moved";
        return Failure(std::move(error));
    }
    void end(Id id, Result<HttpResponse> answer) {
        if (auto ended = held_.extract(id)) {
            ended.mapped().done(std::move(answer));
        }
    }

    SimulatedTime& time_;
    Id sent_ = 0;
    std::unordered_map<Id, Held> held_;
};

class HangingReads : public ::testing::Test {
public:
    ~HangingReads() override { sender_->stop(); }

protected:
    HangingReads() {
        StoreConfig config;
        config.bucket = "bucket";
        config.no_sign_request = true;
        sender_ = std::make_shared<RequestSender>(
            config, Endpoint{"http", "store", "/bucket", "us-east-1"},
            S3Dependencies{transport_, time_, time_.clock, executor_, credentials_, [] { return 0.5; }});
    }
    void get() {
        GetRequest request;
        request.key = "k";
        request.range = ByteRange{0, kSize, false};
        request.if_match = "\"one\"";
        request.on_body = [this](ByteSpan bytes) {
            got_ += as_text(bytes);
            return true;
        };
        got_.clear();
        answer_.reset();
        std::make_shared<GetOperation>(sender_, false, std::move(request), [this](Result<GetResponse> answer) {
            answer_ = answer ? Status() : failure(std::move(answer.error()));
        })->start();
    }
    void head() {
        answer_.reset();
        head_object(sender_, "k", std::make_shared<RetryState>(), [this](Result<ObjectInfo> answer) {
            answer_ = answer ? Status() : failure(std::move(answer.error()));
        });
    }
    void pass(Milliseconds time) { time_.run_until(time_.clock.now() + time); }
    void learn() {
        for (int each = 0; each < 20; ++each) {
            get();
            pass(milliseconds(20));
            transport_.answer_body(transport_.last(), 0);
            head();
            pass(milliseconds(20));
            transport_.answer_head(transport_.last());
        }
    }
    [[nodiscard]] bool succeeded() const { return answer_ && *answer_; }

    SimulatedTime time_;
    HeldTransport transport_{time_};
    InlineExecutor executor_;
    NoCredentials credentials_;
    std::shared_ptr<RequestSender> sender_;
    std::optional<Status> answer_;
    std::string got_;
};

TEST_F(HangingReads, AreAskedAgainOnAnotherConnection) {
    learn();
    get();
    const auto hangs = transport_.last();
    pass(milliseconds(300));
    EXPECT_FALSE(transport_.holds(hangs));
    ASSERT_NE(transport_.last(), hangs);
    transport_.answer_body(transport_.last(), 0);
    EXPECT_TRUE(succeeded());
    EXPECT_EQ(got_, "0123456789");
    EXPECT_EQ(sender_->statistics().late_reads, 1U);
}

TEST_F(HangingReads, GoOnWhereTheyHung) {
    learn();
    get();
    transport_.begin_body(transport_.last(), 0, 4);
    pass(milliseconds(300));
    EXPECT_EQ(transport_.range_of(transport_.last()), "bytes=4-9");
    transport_.answer_body(transport_.last(), 4);
    EXPECT_TRUE(succeeded());
    EXPECT_EQ(got_, "0123456789");
}

TEST_F(HangingReads, SoAreLooksAtAnObject) {
    learn();
    head();
    const auto hangs = transport_.last();
    pass(milliseconds(300));
    ASSERT_NE(transport_.last(), hangs);
    transport_.answer_head(transport_.last());
    EXPECT_TRUE(succeeded());
}

TEST_F(HangingReads, ThatHangOnEveryConnectionFailAsAnyRequestDoes) {
    learn();
    get();
    pass(std::chrono::minutes(10));
    ASSERT_TRUE(answer_);
    EXPECT_EQ(answer_->error().errno_value, EIO);
    EXPECT_EQ(sender_->statistics().late_reads, 3U);
}

TEST_F(HangingReads, OfAStoreThatWasNotAskedBeforeWaitForTheirStallTimeout) {
    get();
    pass(seconds(19));
    EXPECT_EQ(transport_.last(), 1U);
    pass(seconds(2));
    EXPECT_EQ(transport_.last(), 2U);
    EXPECT_EQ(transport_.canceled, 0);
    transport_.answer_body(2, 0);
    EXPECT_TRUE(succeeded());
}

TEST_F(HangingReads, OfWhichAllAreLateAreMostlyLeftAlone) {
    learn();
    const auto before = transport_.last();
    for (int each = 0; each < 40; ++each) {
        get();
    }
    pass(seconds(10));
    EXPECT_EQ(transport_.last() - before, 40U + LateReads::kAtOnce);
}

// A page of a list takes longer than the look at a name.
TEST(LateReadsOfLists, PagesAreNotComparedWithLooksAtNames) {
    SimulatedTime time;
    HeldTransport transport(time);
    InlineExecutor executor;
    NoCredentials credentials;
    StoreConfig config;
    config.bucket = "bucket";
    config.no_sign_request = true;
    S3Store store(config, Endpoint{"http", "store", "/bucket", "us-east-1"},
                  S3Dependencies{transport, time, time.clock, executor, credentials, [] { return 0.5; }});
    const auto list = [&](int keys) {
        ListRequest request;
        request.max_keys = keys;
        store.list(std::move(request), [](const Result<ListResponse>&) {});
    };
    for (int each = 0; each < 20; ++each) {
        list(1);
        time.run_until(time.clock.now() + milliseconds(20));
        transport.answer_list(transport.last());
    }
    list(1000);
    time.run_until(time.clock.now() + milliseconds(400));
    EXPECT_EQ(transport.canceled, 0);
    list(1);
    time.run_until(time.clock.now() + milliseconds(400));
    EXPECT_EQ(transport.canceled, 1);
}

TEST_F(HangingReads, AreCanceledWhenTheMountEnds) {
    learn();
    get();
    pass(milliseconds(300));
    sender_->stop();
    ASSERT_TRUE(answer_);
    EXPECT_EQ(answer_->error().errno_value, ECANCELED);
}

}  // namespace
}  // namespace ckptfs::s3
