// SPDX-License-Identifier: Apache-2.0
#include "s3/request_sender.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/held_executor.h"
#include "support/inline_executor.h"
#include "support/manual_clock.h"
#include "support/no_credentials.h"
#include "support/scripted_transport.h"
#include "support/simulated_time.h"

namespace ckptfs::s3 {

using namespace testing;
namespace {

using std::chrono::seconds;

Error reset() {
    Error error;
    error.errno_value = ECONNRESET;
    error.retryable = true;
    return error;
}

// A store of which tests say how it answers each key at each time of the test.
class Outage : public ::testing::Test {
protected:
    using Status = std::function<int(const std::string& url, Milliseconds time)>;

    Outage() {
        StoreConfig config;
        config.bucket = "bucket";
        config.no_sign_request = true;
        sender_ = std::make_shared<RequestSender>(
            config, Endpoint{"http", "store", "/bucket", "us-east-1"},
            S3Dependencies{transport_, time_, time_.clock, executor_, credentials_, [this] { return chance_(); }});
    }
    ~Outage() override { sender_->stop(); }

    void answer(Status status) {
        transport_.answer_with([this, status = std::move(status)](const HttpRequest& request) {
            attempts_[request.url].push_back(now());
            const int code = status(request.url, now());
            const std::map<int, std::string> names{{404, "NoSuchKey"}, {500, "InternalError"}, {503, "SlowDown"}};
            return HttpResponse{code, {}, code == 200 ? "" : "<Error><Code>" + names.at(code) + "</Code></Error>"};
        });
    }
    void send(const std::string& key) {
        auto call = std::make_shared<Call>();
        call->request = head_request(key);
        call->done = [this](const Result<HttpResponse>& outcome) { (outcome ? ended_ : failed_).push_back(now()); };
        sender_->send(call);
    }
    void run_until(Milliseconds time) { time_.run_until(start_ + time); }
    [[nodiscard]] Milliseconds now() const {
        return std::chrono::duration_cast<Milliseconds>(time_.clock.now() - start_);
    }
    [[nodiscard]] const std::vector<Milliseconds>& attempts(const std::string& key) {
        return attempts_["http://store/bucket/" + key];
    }

    std::mt19937 random_{7};
    std::function<double()> chance_ = [this] { return std::uniform_real_distribution<>(0, 1)(random_); };
    SimulatedTime time_;
    const SteadyTime start_ = time_.clock.now();
    InlineExecutor executor_;
    NoCredentials credentials_;
    ScriptedTransport transport_;
    std::shared_ptr<RequestSender> sender_;
    std::map<std::string, std::vector<Milliseconds>> attempts_;
    std::vector<Milliseconds> ended_;
    std::vector<Milliseconds> failed_;
};

TEST_F(Outage, ItsEndIsUsedByAllWithinThreeSeconds) {
    answer([](const std::string&, Milliseconds time) { return time < seconds(60) ? 500 : 200; });
    for (int call = 0; call < 48; ++call) {
        send("k" + std::to_string(call));
    }
    run_until(seconds(120));
    ASSERT_EQ(ended_.size(), 48U);
    EXPECT_LE(ended_.back() - ended_.front(), seconds(3));
    // Not all in the same moment.
    EXPECT_GT(ended_.back() - ended_.front(), seconds(1));
}

// One of ten servers is 20 minutes ahead: what it refuses is signed by its time, and refused by the next.
TEST_F(Outage, AServerWithTheWrongTimeIsGotOver) {
    int sent = 0;
    transport_.answer_with([&](const HttpRequest&) -> HttpResponse {
        constexpr const char* kSkewed = "<Error><Code>RequestTimeTooSkewed</Code></Error>";
        switch (++sent) {
            case 1:
                return {403, {{"date", "Sat, 01 Jan 2022 00:20:00 GMT"}}, kSkewed};
            case 2:
                return {403, {{"date", "Sat, 01 Jan 2022 00:00:00 GMT"}}, kSkewed};
            default:
                return {200, {}, ""};
        }
    });
    send("a");
    EXPECT_EQ(sent, 2);
    EXPECT_TRUE(failed_.empty());
    run_until(seconds(10));
    EXPECT_EQ(sent, 3);
    EXPECT_EQ(ended_.size(), 1U);
}

// A proxy dates the answers of a store that is wrong.
TEST_F(Outage, ATimeThatNoCorrectionPutsRightIsAnErrorSoon) {
    int sent = 0;
    transport_.answer_with([&](const HttpRequest&) -> HttpResponse {
        ++sent;
        return {403, {{"date", "Sat, 01 Jan 2022 00:20:00 GMT"}}, "<Error><Code>RequestTimeTooSkewed</Code></Error>"};
    });
    send("a");
    run_until(seconds(60));
    EXPECT_EQ(failed_.size(), 1U);
    EXPECT_EQ(sent, 6);
}

TEST_F(Outage, AnAnswerThatRefusesEndsItToo) {
    answer([](const std::string& url, Milliseconds time) {
        return time < seconds(60) ? 500 : (url.ends_with("none") ? 404 : 200);
    });
    for (int call = 0; call < 20; ++call) {
        send("k" + std::to_string(call));
    }
    run_until(seconds(60));
    send("none");
    ASSERT_EQ(failed_.size(), 1U);
    run_until(seconds(63));
    EXPECT_EQ(ended_.size(), 20U);
}

TEST_F(Outage, NoAnswerMayTakeAnyTime) {
    answer([](const std::string&, Milliseconds) { return 200; });
    send("waited-for");
    auto call = std::make_shared<Call>();
    call->request = head_request("handed-on");
    call->on_body = [](ByteSpan) { return true; };
    call->done = [](const Result<HttpResponse>&) {};
    sender_->send(call);
    const std::vector<HttpRequest> asked = transport_.asked();
    ASSERT_EQ(asked.size(), 2U);
    EXPECT_EQ(asked[0].answer_timeout, std::chrono::minutes(15));
    EXPECT_EQ(asked[1].answer_timeout, std::chrono::minutes(15));
    EXPECT_EQ(asked[0].max_collected_body, largest_answer(head_request("k")));
}

// It has no bytes to encode, and a program waits for it: it does not queue behind the frames of others.
TEST_F(Outage, WhatCarriesLittleIsPreparedBeforeWhatIsEncoded) {
    answer([](const std::string&, Milliseconds) { return 200; });
    StoreConfig config;
    config.no_sign_request = true;
    HeldExecutor executor;
    const auto sender = std::make_shared<RequestSender>(
        config, Endpoint{"http", "store", "/bucket", "us-east-1"},
        S3Dependencies{transport_, time_, time_.clock, executor, credentials_, [this] { return chance_(); }});
    for (const std::string& body : {std::string("small"), std::string(std::size_t{1} << 20, 'x')}) {
        auto call = std::make_shared<Call>();
        PutRequest put;
        put.key = "k";
        put.body = Payload::from_string(body);
        call->request = put_request({}, put);
        call->prepare = [](S3Request&) {};
        call->done = [](const Result<HttpResponse>& outcome) { EXPECT_TRUE(outcome); };
        sender->send(call);
        EXPECT_EQ(executor.urgent(), 1U);
    }
    EXPECT_EQ(executor.ordinary(), 1U);
    sender->stop();
}

// Each attempt takes some time, and then has brought nothing for the last of it.
class Stall : public Outage {
protected:
    void stall(Milliseconds takes, Milliseconds without_result, std::size_t times = 1'000) {
        transport_.answer_with([this, takes, without_result, times](const HttpRequest& request) {
            attempts_[request.url].push_back(now());
            if (attempts_[request.url].size() > times) {
                return Result<HttpResponse>(HttpResponse{200, {}, ""});
            }
            time_.clock.move(takes);
            Error error;
            error.errno_value = ETIMEDOUT;
            error.retryable = true;
            error.without_result = without_result;
            return Result<HttpResponse>(failure(std::move(error)));
        });
    }
    void begin(S3Request request, std::function<bool(ByteSpan)> on_body) {
        auto call = std::make_shared<Call>();
        call->request = std::move(request);
        call->on_body = std::move(on_body);
        call->done = [this](const Result<HttpResponse>& outcome) { (outcome ? ended_ : failed_).push_back(now()); };
        sender_->send(call);
    }
    void transfer(S3Request request, std::function<bool(ByteSpan)> on_body) {
        begin(std::move(request), std::move(on_body));
        answer([](const std::string&, Milliseconds) { return 200; });
        run_until(now() + seconds(20));
    }
    static S3Request part() {
        PutRequest put;
        put.key = "sent";
        put.body = Payload::from_string("a part");
        return put_request({}, put);
    }
};

TEST_F(Stall, OfATransferThatMovedForLongIsGotOver) {
    stall(std::chrono::minutes(20), seconds(20));
    transfer(part(), nullptr);
    stall(std::chrono::minutes(20), seconds(20));
    transfer(get_request("received"), [](ByteSpan) { return true; });
    EXPECT_EQ(attempts("sent").size(), 2U);
    EXPECT_EQ(attempts("received").size(), 2U);
    EXPECT_EQ(ended_.size(), 2U);
}

TEST_F(Stall, OfASecondAttemptThatMovedForLongIsGotOverToo) {
    stall(std::chrono::minutes(20), seconds(20), 2);
    begin(part(), nullptr);
    run_until(std::chrono::hours(1));
    EXPECT_EQ(attempts("sent").size(), 3U);
    EXPECT_EQ(ended_.size(), 1U);
}

TEST_F(Stall, OfEveryAttemptIsGivenUpAllTheSame) {
    stall(std::chrono::minutes(20), seconds(20));
    begin(part(), nullptr);
    run_until(std::chrono::hours(24));
    EXPECT_EQ(failed_.size(), 1U);
    // Each counts with its stall and the pause before it.
    EXPECT_GT(attempts("sent").size(), 7U);
    EXPECT_LT(attempts("sent").size(), 16U);
}

// The first attempt breaks off; the second moves for long and is then refused.
TEST_F(Stall, ARefusalOfAPartThatMovedForLongIsGotOver) {
    for (const std::string method : {"PUT", "POST"}) {
        const std::string key = "moved-" + method;
        transport_.answer_with([&](const HttpRequest& request) -> Result<HttpResponse> {
            attempts_[request.url].push_back(now());
            switch (attempts_[request.url].size()) {
                case 1:
                    return failure(reset());
                case 2:
                    time_.clock.move(std::chrono::minutes(20));
                    return HttpResponse{503, {}, "<Error><Code>SlowDown</Code></Error>"};
                default:
                    return HttpResponse{200, {}, ""};
            }
        });
        S3Request request = part();
        request.key = key;
        request.method = method;
        request.body = Payload::from_string(std::string(std::size_t{2} << 20, 'p'));
        begin(std::move(request), nullptr);
        run_until(now() + std::chrono::hours(1));
    }
    EXPECT_EQ(attempts("moved-PUT").size(), 3U);
    EXPECT_EQ(ended_.size(), 1U);
    // The store may have worked at it all the while.
    EXPECT_EQ(attempts("moved-POST").size(), 2U);
    EXPECT_EQ(failed_.size(), 1U);
}

TEST_F(Stall, AnAnswerThatDoesNotEndCountsFromItsBeginning) {
    stall(std::chrono::minutes(20), std::chrono::minutes(15));
    transfer(head_request("overdue"), nullptr);
    EXPECT_EQ(attempts("overdue").size(), 1U);
    EXPECT_EQ(failed_.size(), 1U);
}

TEST_F(Outage, ThoseToldToSlowDownKeepTheirWaits) {
    answer([](const std::string& url, Milliseconds time) {
        const bool is_first = url.ends_with("first");
        return time < seconds(60) ? (is_first ? 500 : 503) : 200;
    });
    for (int call = 0; call < 20; ++call) {
        send("k" + std::to_string(call));
    }
    send("first");
    run_until(seconds(120));
    ASSERT_EQ(ended_.size(), 21U);
    EXPECT_GT(ended_.back() - ended_.front(), seconds(5));
}

TEST_F(Outage, TellsHowManyRequestsTheStoreBearsUntilItBearsAll) {
    answer([](const std::string&, Milliseconds time) { return time < seconds(1) ? 503 : 200; });
    EXPECT_EQ(sender_->slowed_to(), 0);
    send("refused");
    EXPECT_GT(sender_->slowed_to(), 0);
    EXPECT_EQ(sender_->slowed_to(), sender_->statistics().concurrency_limit);
    run_until(seconds(30));
    const int before = sender_->slowed_to();
    for (int call = 0; call < 5'000; ++call) {
        send("k" + std::to_string(call));
    }
    EXPECT_GT(before, 0);
    EXPECT_EQ(sender_->slowed_to(), 0);
}

TEST_F(Outage, WhereOnlyAPartOfTheStoreIsDownBackoffGoesOn) {
    answer([](const std::string& url, Milliseconds) { return url.ends_with("bad") ? 500 : 200; });
    send("bad");
    for (int second = 0; second < 120; ++second) {
        run_until(seconds(second));
        send("good");
    }
    EXPECT_LT(attempts("bad").size(), 30U);
    EXPECT_EQ(ended_.size(), 120U);
}

TEST_F(Outage, TheTimerOfAWaitThatWasCutShortWakesNobody) {
    chance_ = [] { return 0.999; };
    answer([](const std::string& url, Milliseconds time) {
        return url.ends_with("good") && time >= seconds(60) ? 200 : 500;
    });
    send("bad");
    run_until(seconds(60));
    // The longest wait: until 65 s.
    ASSERT_EQ(attempts("bad").size(), 10U);
    send("good");
    run_until(seconds(64));
    EXPECT_EQ(attempts("bad").size(), 11U);
    run_until(seconds(75));
    EXPECT_EQ(attempts("bad").size(), 11U);
}

TEST_F(Outage, TheStoresOwnWordOnWhenToComeBackIsHeeded) {
    transport_.answer_with([this](const HttpRequest& request) {
        attempts_[request.url].push_back(now());
        return HttpResponse{now() < seconds(30) ? 503 : 200, {{"retry-after", "30"}}, ""};
    });
    for (int call = 0; call < 20; ++call) {
        send("k" + std::to_string(call));
    }
    run_until(seconds(29));
    for (int call = 0; call < 20; ++call) {
        EXPECT_EQ(attempts("k" + std::to_string(call)).size(), 1U);
    }
    run_until(seconds(60));
    EXPECT_EQ(ended_.size(), 20U);
    // Not all at once.
    EXPECT_LT(ended_.front(), ended_.back());
}

}  // namespace
}  // namespace ckptfs::s3
