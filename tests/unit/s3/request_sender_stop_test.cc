// SPDX-License-Identifier: Apache-2.0
// The end of a sender while threads are in its transport.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "s3/request_sender.h"
#include "support/inline_executor.h"
#include "support/manual_clock.h"
#include "support/no_credentials.h"
#include "support/stepped_timer.h"

namespace ckptfs::s3 {

using namespace testing;
namespace {

// Fails the first request. The second has its answer, as from another thread, before send() returns, which it does
// when the test says so.
class LingeringTransport final : public HttpTransport {
public:
    Id send(HttpRequest, Done done) override {
        if (++sent_ == 1) {
            done(HttpResponse{503, {}, ""});
            return 1;
        }
        done(HttpResponse{200, {}, ""});
        answered.set_value();
        leaves.get_future().wait();
        return 2;
    }
    void cancel(Id) override {}
    [[nodiscard]] HttpStatistics statistics() const override { return {}; }

    std::promise<void> answered;
    std::promise<void> leaves;

private:
    int sent_ = 0;
};

TEST(StopOfASender, WaitsForTheTimersThreadToLeaveTheTransport) {
    ManualClock clock;
    SteppedTimer timer;
    InlineExecutor executor;
    NoCredentials credentials;
    LingeringTransport transport;
    StoreConfig config;
    config.bucket = "bucket";
    config.no_sign_request = true;
    const auto sender = std::make_shared<RequestSender>(
        config, Endpoint{"http", "store", "/bucket", "us-east-1"},
        S3Dependencies{transport, timer, clock, executor, credentials, [] { return 0.5; }});
    auto call = std::make_shared<Call>();
    call->request = head_request("k");
    call->done = [](const Result<HttpResponse>& outcome) { EXPECT_TRUE(outcome); };
    sender->send(call);
    const auto timer_thread = std::async(std::launch::async, [&timer] { timer.run(); });
    transport.answered.get_future().wait();
    const auto stopped = std::async(std::launch::async, [&sender] { sender->stop(); });
    EXPECT_EQ(stopped.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
    transport.leaves.set_value();
    stopped.wait();
}

}  // namespace
}  // namespace ckptfs::s3
