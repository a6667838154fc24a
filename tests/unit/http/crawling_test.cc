// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "unit/http/raw_server.h"
#include "unit/http/sending.h"

namespace ckptfs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

// A few bytes now and then, until the client has had enough or has all.
void drip(RawConnection& connection, int bytes) {
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n");
    for (int sent = 0; sent < bytes; ++sent) {
        connection.send("x");
        std::this_thread::sleep_for(milliseconds(20));
    }
}

class CrawlingTest : public ::testing::Test {
protected:
    CrawlingTest() {
        CurlTransportOptions options;
        options.threads = 1;
        options.crawl_window = milliseconds(200);
        auto made = make_curl_transport(options);
        EXPECT_TRUE(made.has_value());
        transport_ = std::move(*made);
    }
    Sent ask(const char* path, bool ends_when_crawling) {
        HttpRequest request = get_request(server_.url(path));
        request.ends_when_crawling = ends_when_crawling;
        request.on_body = [](ByteSpan) { return true; };
        return send(*transport_, std::move(request));
    }
    // While this one has no end, others move.
    void move_others_until_ready(std::future<Outcome>& outcome) {
        const auto end = steady_clock::now() + kDeadline;
        while (outcome.wait_for(seconds(0)) != std::future_status::ready && steady_clock::now() < end) {
            auto other = ask("/large", true);
            ASSERT_TRUE(wait(other.outcome).has_value());
        }
    }

    RawServer server_{[](RawConnection& connection) {
        while (const auto request = connection.read_request()) {
            if (request->head.find("/large") == std::string::npos) {
                drip(connection, 100);
                return;
            }
            const std::string body(1 << 20, 'x');
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n");
            connection.send(body);
        }
    }};
    std::unique_ptr<HttpTransport> transport_;
};

TEST_F(CrawlingTest, OneThatCrawlsWhileOthersMoveIsGivenUp) {
    auto crawling = ask("/drip", true);
    move_others_until_ready(crawling.outcome);
    const Outcome outcome = wait(crawling.outcome);
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, ECONNABORTED);
    EXPECT_TRUE(outcome.error().retryable);
    EXPECT_THAT(outcome.error().message, HasSubstr("while others move"));
}

TEST_F(CrawlingTest, UnlessItIsNotAskedFor) {
    auto crawling = ask("/drip", false);
    move_others_until_ready(crawling.outcome);
    EXPECT_TRUE(wait(crawling.outcome).has_value());
}

TEST_F(CrawlingTest, WhereAllCrawlNoneIsGivenUp) {
    std::vector<Sent> all;
    for (int i = 0; i < 6; ++i) {
        all.push_back(ask("/drip", true));
    }
    for (Sent& each : all) {
        EXPECT_TRUE(wait(each.outcome).has_value());
    }
}

}  // namespace
}  // namespace ckptfs
