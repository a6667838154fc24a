// SPDX-License-Identifier: Apache-2.0
// Requests whose credentials the store refuses, or whose source gives none.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "s3/request_sender.h"
#include "support/inline_executor.h"
#include "support/scripted_transport.h"
#include "support/simulated_time.h"

namespace ckptfs::s3 {

using namespace testing;
namespace {

using std::chrono::seconds;

// What an environment or a file gives; a file is read again when the store refuses what it gave.
class KeysInAFile final : public CredentialsProvider {
public:
    void get(CredentialsReady ready) override {
        if (is_down) {
            Error error;
            error.errno_value = EIO;
            error.retryable = true;
            error.message = "the service that gives credentials does not answer";
            ready(failure(std::move(error)));
            return;
        }
        ready(held_);
    }
    void refuse(const SharedCredentials& refused) override {
        if (refused == held_) {
            ++reads;
            held_ = read();
        }
    }
    void accept(const SharedCredentials&) override { ++accepted; }
    bool has_accepted() override { return accepted > 0; }

    void write(const std::string& id) { id_ = id; }

    bool is_down = false;
    int reads = 0;
    int accepted = 0;

private:
    [[nodiscard]] SharedCredentials read() const {
        return std::make_shared<const Credentials>(Credentials{id_, Secret("secret"), Secret("token"), std::nullopt});
    }
    std::string id_ = "first";
    SharedCredentials held_ = read();
};

class RefusedCredentials : public ::testing::Test {
protected:
    // What the store answers to a key at a time of the test; empty: 200.
    using Code = std::function<std::string(const std::string& id, Milliseconds time)>;

    RefusedCredentials() : sender_(make_sender()) {}
    ~RefusedCredentials() override { sender_->stop(); }

    std::shared_ptr<RequestSender> make_sender() {
        StoreConfig config;
        config.bucket = "bucket";
        return std::make_shared<RequestSender>(
            config, Endpoint{"http", "store", "/bucket", "us-east-1"},
            S3Dependencies{transport_, time_, time_.clock, executor_, keys_, [this] { return chance_(); }});
    }
    void answer(Code code) {
        transport_.answer_with([this, code = std::move(code)](const HttpRequest& request) {
            ++attempts_;
            const std::string authorization = header_of(request, "authorization");
            const std::string said =
                code(authorization.find("Credential=second/") == std::string::npos ? "first" : "second", now());
            return HttpResponse{said.empty() ? 200 : (said == "ExpiredToken" ? 400 : 403),
                                {},
                                said.empty() ? "" : "<Error><Code>" + said + "</Code></Error>"};
        });
    }
    void send() {
        auto call = std::make_shared<Call>();
        call->request = head_request("key");
        call->done = [this](Result<HttpResponse> outcome) {
            (outcome ? ended_ : failed_).push_back(now());
            if (!outcome) {
                error_ = outcome.error();
            }
        };
        sender_->send(call);
    }
    void let_one_pass() {
        answer([](const std::string&, Milliseconds) { return ""; });
        send();
        ASSERT_EQ(ended_.size(), 1U);
        ended_.clear();
        attempts_ = 0;
    }
    void run_until(Milliseconds time) { time_.run_until(start_ + time); }
    [[nodiscard]] Milliseconds now() const {
        return std::chrono::duration_cast<Milliseconds>(time_.clock.now() - start_);
    }

    std::mt19937 random_{7};
    std::function<double()> chance_ = [this] { return std::uniform_real_distribution<>(0, 1)(random_); };
    SimulatedTime time_;
    const SteadyTime start_ = time_.clock.now();
    InlineExecutor executor_;
    KeysInAFile keys_;
    ScriptedTransport transport_;
    std::shared_ptr<RequestSender> sender_;
    int attempts_ = 0;
    std::vector<Milliseconds> ended_;
    std::vector<Milliseconds> failed_;
    Error error_;
};

TEST_F(RefusedCredentials, OnceIsOutlivedWithTheSameOnes) {
    let_one_pass();
    int refusals = 1;
    answer([&](const std::string&, Milliseconds) { return refusals-- > 0 ? "ExpiredToken" : ""; });
    send();
    run_until(seconds(1));
    EXPECT_EQ(ended_.size(), 1U);
    EXPECT_EQ(attempts_, 2);
    EXPECT_EQ(keys_.reads, 1);
}

// As the one that checks the bucket as the mount starts, and those that follow.
TEST_F(RefusedCredentials, OnceIsOutlivedByASenderAfterAnotherWasAnswered) {
    let_one_pass();
    sender_->stop();
    sender_ = make_sender();
    int refusals = 1;
    answer([&](const std::string&, Milliseconds) { return refusals-- > 0 ? "ExpiredToken" : ""; });
    send();
    run_until(seconds(1));
    EXPECT_EQ(ended_.size(), 1U);
}

class LateCredentials : public RefusedCredentials, public ::testing::WithParamInterface<const char*> {};

TEST_P(LateCredentials, AreWaitedFor) {
    let_one_pass();
    answer([](const std::string& id, Milliseconds) { return id == "first" ? GetParam() : ""; });
    send();
    run_until(seconds(20));
    EXPECT_TRUE(ended_.empty() && failed_.empty());
    EXPECT_LT(attempts_, 15);
    keys_.write("second");
    run_until(seconds(60));
    EXPECT_EQ(ended_.size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Codes, LateCredentials,
                         ::testing::Values("ExpiredToken", "InvalidToken", "InvalidAccessKeyId",
                                           "SignatureDoesNotMatch", "TokenRefreshRequired", "InvalidSecurity"));

TEST_F(RefusedCredentials, ThoseThatNeverComeAreGivenUpAfterRetryFor) {
    let_one_pass();
    answer([](const std::string&, Milliseconds) { return "ExpiredToken"; });
    send();
    run_until(seconds(299));
    EXPECT_TRUE(failed_.empty());
    run_until(seconds(302));
    ASSERT_EQ(failed_.size(), 1U);
    EXPECT_EQ(error_.errno_value, EACCES);
    EXPECT_NE(error_.message.find("renew the credentials"), std::string::npos);
    EXPECT_NE(error_.message.find("given up after"), std::string::npos);
}

// Nothing of it is sent meanwhile; or nothing more.
TEST_F(RefusedCredentials, APartWhoseCredentialsNeverComeIsGivenUpAfterRetryFor) {
    for (const bool was_sent : {false, true}) {
        failed_.clear();
        keys_.is_down = !was_sent;
        const Milliseconds begun = now();
        transport_.answer_with([this](const HttpRequest&) -> Result<HttpResponse> {
            keys_.is_down = true;
            Error reset;
            reset.errno_value = ECONNRESET;
            reset.retryable = true;
            return failure(std::move(reset));
        });
        auto call = std::make_shared<Call>();
        PutRequest put;
        put.key = "key";
        put.body = Payload::from_string("a part");
        call->request = put_request({}, put);
        call->done = [this](const Result<HttpResponse>& outcome) { (outcome ? ended_ : failed_).push_back(now()); };
        sender_->send(call);
        run_until(begun + std::chrono::hours(2));
        ASSERT_EQ(failed_.size(), 1U) << was_sent;
        EXPECT_GE(failed_[0] - begun, seconds(299));
        EXPECT_LE(failed_[0] - begun, seconds(302));
    }
}

TEST_F(RefusedCredentials, WhereNoneWasEverAcceptedTheyAreWrong) {
    answer([](const std::string&, Milliseconds) { return "InvalidAccessKeyId"; });
    send();
    ASSERT_EQ(failed_.size(), 1U);
    EXPECT_EQ(failed_[0], Milliseconds(0));
    EXPECT_EQ(error_.errno_value, EACCES);
    EXPECT_NE(error_.message.find("does not know this access key"), std::string::npos);
    EXPECT_EQ(error_.message.find("given up"), std::string::npos);
}

TEST_F(RefusedCredentials, MissingRightsAreNotWaitedFor) {
    let_one_pass();
    answer([](const std::string&, Milliseconds) { return "AccessDenied"; });
    send();
    EXPECT_EQ(failed_.size(), 1U);
    EXPECT_EQ(attempts_, 1);
    EXPECT_EQ(keys_.reads, 0);
}

}  // namespace
}  // namespace ckptfs::s3
