// SPDX-License-Identifier: Apache-2.0
// Bodies that are collected, one by one and together.
#include "http/collected_body.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "support/eventually.h"
#include "unit/http/raw_server.h"
#include "unit/http/sending.h"

namespace ckptfs {
namespace {

constexpr std::size_t kMost = 100'000;

std::string answer_of(int status, std::size_t size, std::size_t sent) {
    return "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n" +
           std::string(sent, 'x');
}

std::unique_ptr<HttpTransport> transport_with(std::size_t max_collected) {
    CurlTransportOptions options;
    options.threads = 2;
    options.max_collected = max_collected;
    return std::move(*make_curl_transport(options));
}

TEST(CollectedBodies, TakeSoMuchTogether) {
    CollectedBodies all(100);
    EXPECT_TRUE(all.take(60));
    EXPECT_FALSE(all.take(41));
    EXPECT_TRUE(all.take(40));
    all.give_back(60);
    EXPECT_FALSE(all.take(61));
    EXPECT_TRUE(all.take(60));
}

TEST(CollectedBodies, OfAnErrorAreItsFirstBytes) {
    RawServer server([](RawConnection& connection) {
        while (connection.read_request()) {
            connection.send(answer_of(503, 10'000'000, 10'000'000));
        }
    });
    const auto transport = transport_with(10 * CollectedBody::kMostOfAnError);
    HttpRequest request = get_request(server.url("/k"));
    request.max_collected_body = 0;
    for (int times = 0; times < 3; ++times) {
        const Outcome outcome = exchange(*transport, request);
        ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
        EXPECT_EQ(outcome->status, 503);
        EXPECT_EQ(outcome->body.size(), CollectedBody::kMostOfAnError);
    }
}

TEST(CollectedBodies, HeadersAreBoundedToo) {
    RawServer server([](RawConnection& connection) {
        while (connection.read_request()) {
            std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n";
            for (int line = 0; line < 10'000; ++line) {
                head += "x-amz-meta-" + std::to_string(line) + ": " + std::string(30, 'x') + "\r\n";
            }
            connection.send(head + "\r\n");
        }
    });
    const auto transport = transport_with(kMost);
    const Outcome outcome = exchange(*transport, get_request(server.url("/k")));
    EXPECT_EQ(outcome ? 0 : outcome.error().errno_value, EMSGSIZE);
}

// As of a store that answers all requests with large bodies that never end.
TEST(CollectedBodies, OfAllRequestsTakeSoMuchTogether) {
    constexpr std::size_t kEach = kMost * 3 / 5;
    std::promise<void> others_are_answered;
    std::promise<void> first_has_begun;
    RawServer server([&, others = others_are_answered.get_future().share()](RawConnection& connection) {
        while (const auto asked = connection.read_request()) {
            if (asked->head.starts_with("GET /first ")) {
                connection.send(answer_of(200, kEach, kEach - 1));
                first_has_begun.set_value();
                others.wait();
                connection.send("x");
            } else {
                connection.send(answer_of(asked->head.starts_with("GET /error ") ? 404 : 200, kEach, kEach));
            }
        }
    });
    const auto transport = transport_with(kMost);
    Sent first = send(*transport, get_request(server.url("/first")));
    first_has_begun.get_future().wait();
    EXPECT_TRUE(testing::eventually([&] { return transport->statistics().bytes_received >= kEach - 1; }));
    const Outcome second = exchange(*transport, get_request(server.url("/second")));
    EXPECT_EQ(second ? 0 : second.error().errno_value, ENOBUFS);
    EXPECT_TRUE(!second && second.error().retryable);
    const Outcome error = exchange(*transport, get_request(server.url("/error")));
    EXPECT_EQ(error ? error->status : 0, 404);
    others_are_answered.set_value();
    const Outcome ended = wait(first.outcome);
    EXPECT_TRUE(ended && ended->body.size() == kEach);
    // What was read makes room; the last is given back a moment after its answer.
    EXPECT_TRUE(testing::eventually([&] {
        const Outcome again = exchange(*transport, get_request(server.url("/third")));
        return again && again->body.size() == kEach;
    }));
}

}  // namespace
}  // namespace ckptfs
