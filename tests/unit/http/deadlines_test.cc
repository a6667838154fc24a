// SPDX-License-Identifier: Apache-2.0
// How long a transfer may take: without a byte, and for its whole answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "http/curl_transport.h"
#include "unit/http/raw_server.h"
#include "unit/http/sending.h"

namespace ckptfs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

TEST(Deadlines, AStalledResponseTimesOut) {
    RawServer server([](RawConnection& connection) {
        connection.read_request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        connection.wait_for_close();
    });
    const auto transport = make_transport();
    HttpRequest request = get_request(server.url("/k"));
    request.stall_timeout = milliseconds(200);
    const auto begin = steady_clock::now();
    const Outcome outcome = exchange(*transport, std::move(request));
    const auto took = steady_clock::now() - begin;
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, ETIMEDOUT);
    EXPECT_TRUE(outcome.error().retryable);
    EXPECT_TRUE(outcome.error().outcome_unknown);
    EXPECT_EQ(outcome.error().without_result, milliseconds(200));
    EXPECT_GE(took, milliseconds(200));
    EXPECT_LT(took, seconds(2));
}

TEST(Deadlines, AnAnswerThatDoesNotEndTimesOut) {
    std::promise<void> over;
    RawServer server([until = over.get_future().share()](RawConnection& connection) {
        connection.read_request();
        connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while (until.wait_for(milliseconds(50)) != std::future_status::ready) {
            connection.send("1\r\n \r\n");
        }
    });
    const auto transport = make_transport();
    HttpRequest request = get_request(server.url("/k?uploadId=u"));
    request.method = "POST";
    request.body = Payload::from_string("<CompleteMultipartUpload/>");
    request.stall_timeout = milliseconds(5000);
    request.answer_timeout = milliseconds(400);
    const auto begin = steady_clock::now();
    const Outcome outcome = exchange(*transport, std::move(request));
    const auto took = steady_clock::now() - begin;
    over.set_value();
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, ETIMEDOUT);
    EXPECT_TRUE(outcome.error().retryable);
    EXPECT_TRUE(outcome.error().outcome_unknown);
    EXPECT_EQ(outcome.error().without_result, milliseconds(400));
    EXPECT_THAT(outcome.error().message, HasSubstr("did not end"));
    EXPECT_GE(took, milliseconds(400));
    EXPECT_LT(took, seconds(5));
}

// Sends `begin`, then `drib` every 50 ms until the request has been given up; returns how that ended.
Outcome dribbled(const std::string& begin, const std::string& drib) {
    std::promise<void> over;
    RawServer server([until = over.get_future().share(), begin, drib](RawConnection& connection) {
        connection.read_request();
        connection.send(begin);
        while (until.wait_for(milliseconds(50)) != std::future_status::ready) {
            connection.send(drib);
        }
    });
    const auto transport = make_transport();
    HttpRequest request = get_request(server.url("/k"));
    request.on_body = [](ByteSpan) { return true; };
    request.stall_timeout = milliseconds(5000);
    request.answer_timeout = milliseconds(400);
    Outcome outcome = exchange(*transport, std::move(request));
    over.set_value();
    return outcome;
}

TEST(Deadlines, AHeadThatDoesNotEndTimesOutAlsoBeforeABodyThatIsHandedOn) {
    const Outcome outcome = dribbled("HTTP/1.1 200 OK\r\n", "X-Drib: y\r\n");
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, ETIMEDOUT);
    EXPECT_THAT(outcome.error().message, HasSubstr("did not end"));
}

TEST(Deadlines, AnErrorThatDoesNotEndTimesOutAlsoWhereABodyWouldBeHandedOn) {
    const Outcome outcome = dribbled("HTTP/1.1 503 Slow\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n");
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, ETIMEDOUT);
    EXPECT_THAT(outcome.error().message, HasSubstr("did not end"));
}

// Ten bytes, one after the other.
void trickle(RawConnection& connection) {
    connection.read_request();
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
    for (int i = 0; i < 10; ++i) {
        std::this_thread::sleep_for(milliseconds(80));
        connection.send("x");
    }
}

TEST(Deadlines, ABodyThatIsHandedOnMayTakeAnyTime) {
    RawServer server(trickle);
    const auto transport = make_transport();
    HttpRequest request = get_request(server.url("/k"));
    std::string body;
    request.on_body = [&body](ByteSpan bytes) {
        body += as_text(bytes);
        return true;
    };
    request.answer_timeout = milliseconds(200);
    const Outcome outcome = exchange(*transport, std::move(request));
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    EXPECT_EQ(body, "xxxxxxxxxx");
}

TEST(Deadlines, ASlowResponseThatMovesIsLeftAlone) {
    RawServer server(trickle);
    const auto transport = make_transport();
    HttpRequest request = get_request(server.url("/k"));
    request.stall_timeout = milliseconds(400);
    const Outcome outcome = exchange(*transport, std::move(request));
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    EXPECT_EQ(outcome->body, "xxxxxxxxxx");
}

// The kernel takes the whole body at once; the server then reads it far slower than the stall timeout would allow if
// only libcurl's own progress counted.
TEST(Deadlines, ASlowReaderOfTheBodyIsProgress) {
    RawServer server([](RawConnection& connection) {
        const auto head = connection.read_head();
        if (!head) {
            return;
        }
        connection.drain_slowly(2'000'000, 40'000, milliseconds(20));
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        connection.wait_for_close();
    });
    const auto transport = make_transport();
    HttpRequest request = get_request(server.url("/k"));
    request.method = "PUT";
    request.body = Payload::from_string(std::string(2'000'000, 'x'));
    request.stall_timeout = milliseconds(400);
    const Outcome outcome = exchange(*transport, std::move(request));
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
}

TEST(Deadlines, TheStallClockStandsStillInTheQueue) {
    RawServer server([](RawConnection& connection) {
        while (connection.read_request()) {
            std::this_thread::sleep_for(milliseconds(150));
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    const auto transport = make_transport(1, 1);
    std::vector<Sent> sent;
    for (int i = 0; i < 6; ++i) {
        HttpRequest request = get_request(server.url("/k"));
        request.stall_timeout = milliseconds(500);
        sent.push_back(send(*transport, std::move(request)));
    }
    for (Sent& request : sent) {
        EXPECT_TRUE(wait(request.outcome).has_value());
    }
}

}  // namespace
}  // namespace ckptfs
