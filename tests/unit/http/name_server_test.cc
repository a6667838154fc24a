// SPDX-License-Identifier: Apache-2.0
// A name server that never answers: getaddrinfo(3) of this program hangs for one name.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string_view>
#include <thread>

#include "http/curl_transport.h"
#include "support/eventually.h"
#include "unit/http/raw_server.h"

namespace {

constexpr std::string_view kDeadName = "dead.test";
std::atomic<bool> answers = false;
std::atomic<int> lookups = 0;

}  // namespace

extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
    if (node != nullptr && node == kDeadName) {
        ++lookups;
        while (!answers) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        --lookups;
        return EAI_AGAIN;
    }
    using Real = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const auto real = reinterpret_cast<Real>(dlsym(RTLD_NEXT, "getaddrinfo"));
    return real(node, service, hints, result);
}

namespace ckptfs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Outcome = Result<HttpResponse>;

class DeadNameServer : public ::testing::Test {
protected:
    DeadNameServer() {
        CurlTransportOptions options;
        options.threads = 1;
        transport_ = std::move(*make_curl_transport(options));
    }
    // Before what the lookups use goes.
    ~DeadNameServer() override {
        answers = true;
        EXPECT_TRUE(testing::eventually([] { return lookups == 0; }));
        answers = false;
    }

    std::future<Outcome> ask(std::string url) {
        HttpRequest request;
        request.method = "GET";
        request.url = std::move(url);
        request.connect_timeout = milliseconds(200);
        request.bypasses_proxy = true;
        auto promise = std::make_shared<std::promise<Outcome>>();
        auto outcome = promise->get_future();
        transport_->send(std::move(request), [promise](Outcome result) { promise->set_value(std::move(result)); });
        return outcome;
    }
    static bool is_ready(const std::future<Outcome>& outcome) {
        return outcome.wait_for(seconds(20)) == std::future_status::ready;
    }

    RawServer server_{answer_all("x")};
    std::unique_ptr<HttpTransport> transport_;
};

TEST_F(DeadNameServer, HoldsUpNothingElse) {
    auto dead = ask("http://dead.test/");
    ASSERT_TRUE(testing::eventually([] { return lookups > 0; }));
    ASSERT_TRUE(is_ready(dead));
    const Outcome outcome = dead.get();
    ASSERT_FALSE(outcome.has_value());
    EXPECT_TRUE(outcome.error().retryable);
    auto alive = ask(server_.url("/"));
    ASSERT_TRUE(is_ready(alive));
    EXPECT_TRUE(alive.get().has_value());
    EXPECT_GT(lookups, 0);
}

TEST_F(DeadNameServer, NorTheEnd) {
    auto dead = ask("http://dead.test/");
    ASSERT_TRUE(testing::eventually([] { return lookups > 0; }));
    auto ended = std::async(std::launch::async, [this] { transport_.reset(); });
    const bool has_ended = ended.wait_for(seconds(20)) == std::future_status::ready;
    EXPECT_TRUE(has_ended);
    // Else the test would hang as the transport does.
    answers = true;
    EXPECT_TRUE(is_ready(dead));
}

}  // namespace
}  // namespace ckptfs
