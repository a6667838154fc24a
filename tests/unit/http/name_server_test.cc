// SPDX-License-Identifier: Apache-2.0
// A name server that does not answer, and hosts of several addresses: getaddrinfo(3) of this program hangs for one
// name, and for others from some moment on.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/file_descriptor.h"
#include "http/curl_transport.h"
#include "support/eventually.h"
#include "unit/http/raw_server.h"

namespace {

constexpr std::string_view kDeadName = "dead.test";
// Is this machine, as long as a name server is there.
constexpr std::string_view kKnownName = "known.test";
// Two addresses of this machine, as long as it is there.
constexpr std::string_view kSpreadName = "spread.test";
std::atomic<bool> server_is_there = true;
std::atomic<bool> answers = false;
std::atomic<int> lookups = 0;

}  // namespace

extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
    const std::string_view name = node == nullptr ? "" : node;
    if (name == kDeadName || ((name == kKnownName || name == kSpreadName) && !server_is_there)) {
        ++lookups;
        while (!answers) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        --lookups;
        return EAI_AGAIN;
    }
    using Real = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const auto real = reinterpret_cast<Real>(dlsym(RTLD_NEXT, "getaddrinfo"));
    const int error = real(name == kKnownName || name == kSpreadName ? "127.0.0.1" : node, service, hints, result);
    if (error != 0 || name != kSpreadName) {
        return error;
    }
    // freeaddrinfo(3) of glibc frees one after the other.
    return real("127.0.0.2", service, hints, &(*result)->ai_next);
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
        request.connect_timeout = connect_timeout_;
        request.bypasses_proxy = true;
        auto promise = std::make_shared<std::promise<Outcome>>();
        auto outcome = promise->get_future();
        transport_->send(std::move(request), [promise](Outcome result) { promise->set_value(std::move(result)); });
        return outcome;
    }
    static bool is_ready(const std::future<Outcome>& outcome) {
        return outcome.wait_for(seconds(20)) == std::future_status::ready;
    }

    milliseconds connect_timeout_{200};
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

// Every connection asks anew: a connection is closed behind each answer.
class SeveralAddresses : public DeadNameServer {
protected:
    static void answer_once(RawConnection& connection) {
        connection.read_request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx");
    }
    bool answers_next() {
        auto outcome = ask("http://" + std::string(kSpreadName) + ":" + std::to_string(first_.port()) + "/");
        return is_ready(outcome) && outcome.get().has_value();
    }

    RawServer first_{answer_once};
};

TEST_F(SeveralAddresses, ShareTheConnections) {
    const RawServer second(answer_once, 2, first_.port());
    // All to one: not once in a billion runs.
    for (int i = 0; i < 32; ++i) {
        ASSERT_TRUE(answers_next());
    }
    EXPECT_GT(first_.connections(), 0);
    EXPECT_GT(second.connections(), 0);
}

TEST_F(SeveralAddresses, OneThatRefusesIsPassedOver) {
    connect_timeout_ = seconds(120);
    for (int i = 0; i < 16; ++i) {
        EXPECT_TRUE(answers_next());
    }
}

// A connection that waits to be accepted fills the queue: what comes after it gets no answer.
TEST_F(SeveralAddresses, OneThatIsSilentIsPassedOver) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    address.sin_port = htons(first_.port());
    const auto* const silent = reinterpret_cast<const sockaddr*>(&address);
    const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const FileDescriptor waiting(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(listener.get(), silent, sizeof address), 0);
    ASSERT_EQ(listen(listener.get(), 0), 0);
    ASSERT_EQ(connect(waiting.get(), silent, sizeof address), 0);
    connect_timeout_ = seconds(2);
    for (int i = 0; i < 6; ++i) {
        EXPECT_TRUE(answers_next());
    }
}

TEST_F(SeveralAddresses, OneThatDiedWhileNoNameServerAnswersIsPassedOver) {
    {
        const RawServer second(answer_once, 2, first_.port());
        // Both have answered, and this one last.
        bool was_last = false;
        for (int tries = 0; tries < 1000 && !(was_last && first_.connections() > 0); ++tries) {
            const int before = second.connections();
            ASSERT_TRUE(answers_next());
            was_last = second.connections() > before;
        }
        ASSERT_TRUE(was_last);
    }
    server_is_there = false;
    EXPECT_FALSE(answers_next());
    for (int i = 0; i < 8; ++i) {
        EXPECT_TRUE(answers_next());
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
