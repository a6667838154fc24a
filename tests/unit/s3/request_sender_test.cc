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

#include "support/inline_executor.h"
#include "support/manual_clock.h"
#include "support/scripted_transport.h"

namespace ckptfs::testing {
namespace {

using std::chrono::seconds;

// Moves the clock from one timer to the next.
class SimulatedTime final : public Timer {
public:
    Id after(Milliseconds delay, std::function<void()> run) override {
        waiting_.emplace(clock.now() + delay, std::move(run));
        return waiting_.size();
    }
    void cancel(Id) override {}

    void run_until(SteadyTime end) {
        while (!waiting_.empty() && waiting_.begin()->first <= end) {
            const auto next = waiting_.extract(waiting_.begin());
            move_to(next.key());
            next.mapped()();
        }
        move_to(end);
    }

    ManualClock clock;

private:
    void move_to(SteadyTime time) { clock.move(std::chrono::duration_cast<Milliseconds>(time - clock.now())); }

    std::multimap<SteadyTime, std::function<void()>> waiting_;
};

class NoCredentials final : public CredentialsProvider {
public:
    void get(CredentialsReady ready) override { ready(SharedCredentials()); }
    void refuse(const SharedCredentials&) override {}
};

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

}  // namespace
}  // namespace ckptfs::testing
