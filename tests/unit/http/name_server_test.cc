// SPDX-License-Identifier: Apache-2.0
// A name server that does not answer: getaddrinfo(3) of this program hangs for one name, and for another from some
// moment on.
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
// Is this machine, as long as a name server is there.
constexpr std::string_view kKnownName = "known.test";
std::atomic<bool> server_is_there = true;
std::atomic<bool> answers = false;
std::atomic<int> lookups = 0;

}  // namespace

extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
    if (node != nullptr && (node == kDeadName || (node == kKnownName && !server_is_there))) {
        ++lookups;
        while (!answers) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        --lookups;
        return EAI_AGAIN;
    }
    using Real = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const auto real = reinterpret_cast<Real>(dlsym(RTLD_NEXT, "getaddrinfo"));
    return real(node != nullptr && node == kKnownName ? "127.0.0.1" : node, service, hints, result);
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
        server_is_there = true;
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

TEST_F(DeadNameServer, IsReplacedByAddressesThatAnswered) {
    RawServer once([](RawConnection& connection) {
        connection.read_request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx");
    });
    std::string url = once.url("/");
    url.replace(url.find("127.0.0.1"), std::string_view("127.0.0.1").size(), kKnownName);
    auto before = ask(url);
    ASSERT_TRUE(is_ready(before));
    ASSERT_TRUE(before.get().has_value());
    server_is_there = false;
    auto during = ask(url);
    ASSERT_TRUE(is_ready(during));
    ASSERT_FALSE(during.get().has_value());
    for (int i = 0; i < 3; ++i) {
        auto again = ask(url);
        ASSERT_TRUE(is_ready(again));
        EXPECT_TRUE(again.get().has_value());
    }
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
