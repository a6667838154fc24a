// SPDX-License-Identifier: Apache-2.0
// Connections that are kept after an answer, and end without another one.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <utility>

#include "http/curl_transport.h"
#include "unit/http/raw_server.h"
#include "unit/http/sending.h"

namespace ckptfs {
namespace {

// Each connection answers one request, reads the next one and closes without a byte, as a server does that had given
// the connection up, or that carried the request out and died.
class KeptConnections : public ::testing::Test {
protected:
    Outcome exchange(const std::string& method, bool is_sent_once) {
        HttpRequest request = get_request(server_.url("/k"));
        request.method = method;
        request.is_sent_once = is_sent_once;
        if (method != "GET" && method != "DELETE") {
            request.body = Payload::from_string(std::string(100'000, 'x'));
        }
        return ckptfs::exchange(*transport_, std::move(request));
    }

    // Else what is left unread makes the end a reset.
    std::atomic<bool> reads_bodies_{true};
    std::atomic<int> answered_{0};
    std::atomic<int> left_without_answer_{0};
    RawServer server_{[this](RawConnection& connection) {
        if (!connection.read_request()) {
            return;
        }
        ++answered_;
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        if (reads_bodies_ ? connection.read_request().has_value() : connection.read_head().has_value()) {
            ++left_without_answer_;
        }
    }};
    const std::unique_ptr<HttpTransport> transport_ = make_transport();
};

TEST_F(KeptConnections, AreReplacedWhereOneHasEndedWithoutAnAnswer) {
    reads_bodies_ = false;
    for (const char* method : {"PUT", "PUT", "GET"}) {
        const Outcome outcome = exchange(method, false);
        EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
    }
    EXPECT_EQ(answered_, 3);
}

// It may have been carried out.
TEST_F(KeptConnections, DoNotHideThatARequestThatIsSentOnceHadNoAnswer) {
    for (const char* method : {"PUT", "DELETE", "POST"}) {
        answered_ = 0;
        left_without_answer_ = 0;
        ASSERT_TRUE(exchange(method, true)) << method;
        const Outcome second = exchange(method, true);
        ASSERT_FALSE(second.has_value()) << method;
        EXPECT_EQ(second.error().errno_value, ECONNRESET);
        EXPECT_TRUE(second.error().outcome_unknown);
        EXPECT_TRUE(second.error().retryable);
        EXPECT_EQ(answered_, 1) << method;
        EXPECT_EQ(left_without_answer_, 1) << method;
    }
}

}  // namespace
}  // namespace ckptfs
