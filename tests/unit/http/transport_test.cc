// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "http/curl_transport.h"
#include "http/transfer.h"
#include "unit/http/raw_server.h"
#include "unit/http/sending.h"

namespace ckptfs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Transport, CollectsStatusHeadersAndBody) {
    RawServer server([](RawConnection& connection) {
        connection.read_request();
        connection.send("HTTP/1.1 404 Not Found\r\nX-Amz-Request-ID:  abc \r\nContent-Length: 4\r\n\r\ngone");
    });
    const auto transport = make_transport();
    const Outcome outcome = exchange(*transport, get_request(server.url("/b/k")));
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    EXPECT_EQ(outcome->status, 404);
    EXPECT_EQ(outcome->header("x-amz-request-id"), "abc");
    EXPECT_EQ(outcome->body, "gone");
    EXPECT_EQ(outcome->header("absent"), "");
}

TEST(Transport, GoesOnAfterANameThatCouldNotBeResolved) {
    const auto transport = make_transport();
    // Reserved by RFC 2606: never a name. One request after the other, so that each could take the handle of the last.
    for (int attempt = 0; attempt < 3; ++attempt) {
        const Outcome outcome = exchange(*transport, get_request("http://no-such-store.invalid:9/b/k"));
        ASSERT_FALSE(outcome.has_value());
        EXPECT_TRUE(outcome.error().retryable) << outcome.error().message;
    }
}

TEST(Transport, SendsExactlyTheHeadersItWasGiven) {
    std::promise<std::string> head;
    RawServer server([&head](RawConnection& connection) {
        head.set_value(connection.read_request().value_or(RawRequest{}).head);
        connection.send("HTTP/1.1 204 No Content\r\n\r\n");
    });
    const auto transport = make_transport();
    HttpRequest request = get_request(server.url("/bucket/a/../b//c%20d?list-type=2&prefix="));
    request.method = "DELETE";
    request.headers = {{"x-amz-date", "20130524T000000Z"}, {"x-amz-meta-empty", ""}, {"Authorization", "secret"}};
    ASSERT_TRUE(exchange(*transport, std::move(request)).has_value());
    const std::string seen = head.get_future().get();
    EXPECT_THAT(seen, HasSubstr("DELETE /bucket/a/../b//c%20d?list-type=2&prefix= HTTP/1.1\r\n"));
    EXPECT_THAT(seen, HasSubstr("\r\nx-amz-date: 20130524T000000Z\r\n"));
    EXPECT_THAT(seen, HasSubstr("\r\nx-amz-meta-empty:\r\n"));
    EXPECT_THAT(seen, HasSubstr("\r\nAuthorization: secret\r\n"));
    EXPECT_THAT(seen, Not(HasSubstr("Expect")));
    EXPECT_THAT(seen, Not(HasSubstr("Accept")));
}

TEST(Transport, SendsABodyOfManySlices) {
    std::promise<RawRequest> received;
    RawServer server([&received](RawConnection& connection) {
        received.set_value(connection.read_request().value_or(RawRequest{}));
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    const auto transport = make_transport();
    HttpRequest request = get_request(server.url("/k"));
    request.method = "PUT";
    std::string expected;
    for (int i = 0; i < 300; ++i) {
        std::string slice(static_cast<std::size_t>(i) * 97, static_cast<char>('a' + i % 26));
        expected += slice;
        request.body.append(Payload::from_string(std::move(slice)));
    }
    ASSERT_TRUE(exchange(*transport, std::move(request)).has_value());
    const RawRequest seen = received.get_future().get();
    EXPECT_EQ(seen.body, expected);
    EXPECT_THAT(seen.head, HasSubstr("Content-Length: " + std::to_string(expected.size())));
    EXPECT_EQ(transport->statistics().bytes_sent, expected.size());
}

TEST(Transport, AnEmptyPostSaysSo) {
    std::promise<std::string> head;
    RawServer server([&head](RawConnection& connection) {
        head.set_value(connection.read_request().value_or(RawRequest{}).head);
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    const auto transport = make_transport();
    HttpRequest request = get_request(server.url("/k?uploads="));
    request.method = "POST";
    ASSERT_TRUE(exchange(*transport, std::move(request)).has_value());
    EXPECT_THAT(head.get_future().get(), HasSubstr("\r\nContent-Length: 0\r\n"));
}

TEST(Transport, StreamsTheBodyAfterItsHead) {
    RawServer server(answer_all(std::string(300'000, 'x')));
    const auto transport = make_transport();
    HttpRequest request = get_request(server.url("/k"));
    auto heads = std::make_shared<int>(0);
    auto body = std::make_shared<std::string>();
    request.on_head = [heads, body](const HttpResponse& response) {
        ++*heads;
        return body->empty() && response.status == 200 && response.header("content-length") == "300000";
    };
    request.on_body = [body](ByteSpan bytes) {
        body->append(as_text(bytes));
        return true;
    };
    const Outcome outcome = exchange(*transport, std::move(request));
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    EXPECT_EQ(*heads, 1);
    EXPECT_EQ(*body, std::string(300'000, 'x'));
    EXPECT_TRUE(outcome->body.empty());
    EXPECT_EQ(transport->statistics().bytes_received, 300'000U);
}

TEST(Transport, AReceiverEndsTheTransferAtHeadOrBody) {
    RawServer server(answer_all("hello"));
    const auto transport = make_transport();
    HttpRequest at_head = get_request(server.url("/k"));
    at_head.on_head = [](const HttpResponse&) { return false; };
    auto handed_on = std::make_shared<bool>(false);
    at_head.on_body = [handed_on](ByteSpan) { return *handed_on = true; };
    Outcome outcome = exchange(*transport, std::move(at_head));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, ECANCELED);
    EXPECT_FALSE(*handed_on);

    HttpRequest at_body = get_request(server.url("/k"));
    at_body.on_body = [](ByteSpan) { return false; };
    outcome = exchange(*transport, std::move(at_body));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, ECANCELED);
}

TEST(Transport, AnErrorBodyIsCollectedAlsoWhenStreaming) {
    RawServer server([](RawConnection& connection) {
        connection.read_request();
        connection.send("HTTP/1.1 503 Slow Down\r\nContent-Length: 5\r\n\r\nwait!");
    });
    const auto transport = make_transport();
    HttpRequest request = get_request(server.url("/k"));
    request.on_body = [](ByteSpan) { return false; };
    const Outcome outcome = exchange(*transport, std::move(request));
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    EXPECT_EQ(outcome->status, 503);
    EXPECT_EQ(outcome->body, "wait!");
}

TEST(Transport, InterimResponsesAreNotTheAnswer) {
    RawServer server([](RawConnection& connection) {
        connection.read_request();
        connection.send("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
        connection.send("HTTP/1.1 200 OK\r\nEtag: \"e\"\r\nContent-Length: 0\r\n\r\n");
    });
    const auto transport = make_transport();
    const Outcome outcome = exchange(*transport, get_request(server.url("/k")));
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    EXPECT_EQ(outcome->status, 200);
    EXPECT_EQ(outcome->header("link"), "");
    EXPECT_EQ(outcome->header("etag"), "\"e\"");
}

TEST(Transport, RedirectsAreHandedBack) {
    RawServer server([](RawConnection& connection) {
        connection.read_request();
        connection.send("HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n");
    });
    const auto transport = make_transport();
    const Outcome outcome = exchange(*transport, get_request(server.url("/k")));
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    EXPECT_EQ(outcome->status, 307);
}

TEST(Transport, ReusesConnections) {
    RawServer server(answer_all("x"));
    const auto transport = make_transport();
    for (int i = 0; i < 5; ++i) {
        ASSERT_TRUE(exchange(*transport, get_request(server.url("/k"))).has_value());
    }
    EXPECT_EQ(server.connections(), 1);
    EXPECT_EQ(transport->statistics().connections_opened, 1U);
    EXPECT_EQ(transport->statistics().requests, 5U);
    EXPECT_EQ(transport->statistics().in_flight, 0U);
}

TEST(Transport, NeverOpensMoreConnectionsThanAllowed) {
    std::atomic<int> serving{0};
    std::atomic<int> most{0};
    RawServer server([&](RawConnection& connection) {
        while (connection.read_request()) {
            const int now = ++serving;
            int seen = most;
            while (now > seen && !most.compare_exchange_weak(seen, now)) {
            }
            std::this_thread::sleep_for(milliseconds(5));
            --serving;
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    const auto transport = make_transport(2, 4);
    std::vector<Sent> sent;
    for (int i = 0; i < 40; ++i) {
        sent.push_back(send(*transport, get_request(server.url("/k"))));
    }
    for (Sent& request : sent) {
        EXPECT_TRUE(wait(request.outcome).has_value());
    }
    EXPECT_LE(most, 4);
    EXPECT_GT(most, 1);
    EXPECT_LE(server.connections(), 4);
}

TEST(Transport, ATruncatedBodyIsAReset) {
    RawServer server([](RawConnection& connection) {
        connection.read_request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    });
    const auto transport = make_transport();
    const Outcome outcome = exchange(*transport, get_request(server.url("/k")));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, ECONNRESET);
    EXPECT_TRUE(outcome.error().retryable);
    EXPECT_TRUE(outcome.error().outcome_unknown);
    EXPECT_THAT(outcome.error().message, Not(HasSubstr("https://")));
}

TEST(Transport, AResetBeforeTheAnswerIsAReset) {
    RawServer server([](RawConnection& connection) {
        connection.read_request();
        connection.reset();
    });
    const auto transport = make_transport();
    HttpRequest request = get_request(server.url("/k"));
    request.headers = {{"Authorization", "a-secret-signature"}};
    const Outcome outcome = exchange(*transport, std::move(request));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, ECONNRESET);
    EXPECT_TRUE(outcome.error().outcome_unknown);
    EXPECT_THAT(outcome.error().message, HasSubstr("127.0.0.1"));
    EXPECT_THAT(outcome.error().message, Not(HasSubstr("secret")));
}

TEST(Transport, NobodyListensThere) {
    const auto transport = make_transport();
    const Outcome outcome = exchange(*transport, get_request("http://127.0.0.1:1/k"));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, ECONNREFUSED);
    EXPECT_TRUE(outcome.error().retryable);
    EXPECT_FALSE(outcome.error().outcome_unknown);
}

TEST(Transport, AnUnknownHostIsUnreachable) {
    const auto transport = make_transport();
    const Outcome outcome = exchange(*transport, get_request("http://no-such-host.invalid/k"));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, EHOSTUNREACH);
    EXPECT_FALSE(outcome.error().outcome_unknown);
}

TEST(Transport, OtherSchemesAreRefused) {
    const auto transport = make_transport();
    const Outcome outcome = exchange(*transport, get_request("file:///etc/passwd"));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, EINVAL);
}

TEST(Transport, PlainTextIsNotTls) {
    RawServer server([](RawConnection& connection) {
        connection.send("HTTP/1.1 200 OK\r\n\r\n");
        connection.wait_for_close();
    });
    std::string url = server.url("/k");
    url.replace(0, 4, "https");
    const auto transport = make_transport();
    const Outcome outcome = exchange(*transport, get_request(url));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, EPROTO);
    EXPECT_THAT(outcome.error().message, HasSubstr("does not speak TLS; did you mean http://"));
}

TEST(Transport, AHeaderCannotSmuggleAnother) {
    RawServer server(answer_all(""));
    const auto transport = make_transport();
    HttpRequest request = get_request(server.url("/k"));
    request.headers = {{"x-amz-meta-a", "1\r\nx-amz-acl: public-read"}};
    const Outcome outcome = exchange(*transport, std::move(request));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, EINVAL);
    EXPECT_EQ(server.connections(), 0);
}

TEST(Transport, ACollectedBodyIsBounded) {
    RawServer server(answer_all(std::string(100'000, 'x')));
    const auto transport = make_transport();
    HttpRequest request = get_request(server.url("/k"));
    request.max_collected_body = 1000;
    const Outcome outcome = exchange(*transport, std::move(request));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, EMSGSIZE);
    EXPECT_FALSE(outcome.error().retryable);
}

TEST(Transport, CancelEndsActiveAndWaitingRequests) {
    RawServer server([](RawConnection& connection) { connection.wait_for_close(); });
    const auto transport = make_transport(1, 1);
    Sent active = send(*transport, get_request(server.url("/active")));
    Sent waiting = send(*transport, get_request(server.url("/waiting")));
    transport->cancel(waiting.id);
    Outcome outcome = wait(waiting.outcome);
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, ECANCELED);
    EXPECT_FALSE(outcome.error().outcome_unknown);
    transport->cancel(active.id);
    outcome = wait(active.outcome);
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, ECANCELED);
    transport->cancel(active.id);
}

TEST(Transport, DestructionCompletesEverything) {
    RawServer server([](RawConnection& connection) { connection.wait_for_close(); });
    auto transport = make_transport(2, 2);
    std::vector<Sent> sent;
    for (int i = 0; i < 10; ++i) {
        sent.push_back(send(*transport, get_request(server.url("/k"))));
    }
    // A callback that sends again, as a retry would, is answered too.
    auto last = std::make_shared<std::promise<Outcome>>();
    auto again = last->get_future();
    HttpTransport* raw = transport.get();
    transport->send(get_request(server.url("/k")), [raw, last, url = server.url("/k")](Outcome) {
        raw->send(get_request(url), [last](Outcome outcome) { last->set_value(std::move(outcome)); });
    });
    transport.reset();
    for (Sent& request : sent) {
        const Outcome outcome = wait(request.outcome);
        ASSERT_FALSE(outcome.has_value());
        EXPECT_EQ(outcome.error().errno_value, ECANCELED);
    }
    const Outcome outcome = wait(again);
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().errno_value, ECANCELED);
}

}  // namespace
}  // namespace ckptfs
