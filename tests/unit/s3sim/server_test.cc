// SPDX-License-Identifier: Apache-2.0
#include "s3sim/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "s3sim/admin.h"
#include "s3sim/simulator.h"

namespace ckptfs::s3sim {
namespace {

constexpr int kDeadlineMs = 10'000;

// A client that sends and receives bytes and knows nothing.
class RawClient {
public:
    explicit RawClient(std::uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
        sockaddr_in name{};
        name.sin_family = AF_INET;
        name.sin_port = htons(port);
        name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    }
    ~RawClient() { close(fd_); }
    RawClient(const RawClient&) = delete;
    RawClient& operator=(const RawClient&) = delete;

    void send_text(std::string_view text) {
        while (!text.empty()) {
            const ssize_t sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
            if (sent <= 0) {
                return;
            }
            text.remove_prefix(static_cast<std::size_t>(sent));
        }
    }
    // Reads until `text` has been seen or the server closes; "RESET" is added where it resets.
    std::string read_until(std::string_view text) {
        while (text.empty() || received_.find(text) == std::string::npos) {
            pollfd waiting{fd_, POLLIN, 0};
            if (poll(&waiting, 1, kDeadlineMs) != 1) {
                return received_ + "TIMEOUT";
            }
            std::array<char, 65536> buffer{};
            const ssize_t size = recv(fd_, buffer.data(), buffer.size(), 0);
            if (size <= 0) {
                return received_ + (size < 0 ? "RESET" : "");
            }
            received_.append(buffer.data(), static_cast<std::size_t>(size));
        }
        return std::exchange(received_, "");
    }
    std::string read_all() { return read_until(""); }

private:
    const int fd_;
    std::string received_;
};

class ServerTest : public ::testing::Test {
protected:
    ServerTest() {
        EXPECT_TRUE(simulator_.table().create_bucket("bkt", "us-east-1"));
        simulator_.on_release([this] { server_.release_hung(); });
        server_.start();
    }

    static SimulatorOptions anonymous() {
        SimulatorOptions options;
        options.keys.allow_anonymous = true;
        return options;
    }
    std::string request_once(const std::string& text) {
        RawClient client(server_.port());
        client.send_text(text);
        return client.read_all();
    }
    void add_faults(std::string_view json) {
        auto rules = read_fault_rules(json);
        ASSERT_TRUE(rules) << rules.error().message;
        simulator_.faults().add(std::move(*rules));
    }
    void wait_for_hung(std::int64_t count) {
        const auto deadline = Clock::now() + std::chrono::milliseconds(kDeadlineMs);
        while (simulator_.counters().snapshot().hung.now != count && Clock::now() < deadline) {
            usleep(1000);
        }
        EXPECT_EQ(simulator_.counters().snapshot().hung.now, count);
    }

    ChunkPool pool_{std::size_t{1} << 30};
    TrafficShaper shaper_;
    Simulator simulator_{anonymous(), pool_, shaper_};
    Server server_{ServerOptions{}, simulator_, pool_, shaper_};
};

constexpr const char* kPut = "PUT /bkt/k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
constexpr const char* kGet = "GET /bkt/k HTTP/1.1\r\nHost: h\r\n\r\n";
constexpr const char* kLastGet = "GET /bkt/k HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

TEST_F(ServerTest, KeepsAConnectionForManyRequests) {
    const std::string reply = request_once(std::string(kPut) + kGet + kLastGet);
    EXPECT_EQ(reply.find("HTTP/1.1 200 OK"), 0U);
    EXPECT_TRUE(reply.ends_with("hello"));
    EXPECT_EQ(simulator_.counters().snapshot().operations.at("GetObject").requests, 2U);
    EXPECT_EQ(simulator_.counters().snapshot().connections_opened, 1U);
}

TEST_F(ServerTest, TellsAClientToGoOn) {
    RawClient client(server_.port());
    client.send_text("PUT /bkt/k HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send_text("hello");
    EXPECT_EQ(client.read_until("\r\n\r\n").find("HTTP/1.1 200"), 0U);
}

TEST_F(ServerTest, RefusesInsteadOfTellingAClientToGoOn) {
    const std::string reply =
        request_once("PUT /none/k HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    EXPECT_EQ(reply.find("HTTP/1.1 404"), 0U);
    EXPECT_NE(reply.find("<Code>NoSuchBucket</Code>"), std::string::npos);
}

TEST_F(ServerTest, SurvivesGarbage) {
    for (const std::string& garbage :
         {std::string("\x16\x03\x01\x02\r\n\r\n"), std::string(100'000, 'x'), std::string("GET\r\n\r\n"),
          std::string("PUT /bkt/k HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
          std::string("PUT /bkt/k HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n"),
          std::string("GET /%zz HTTP/1.1\r\nConnection: close\r\n\r\n"),
          std::string(
              "PUT /bkt/k?partNumber=x&uploadId=y HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")}) {
        EXPECT_EQ(request_once(garbage).find("HTTP/1.1 4"), 0U) << garbage.substr(0, 60);
    }
    EXPECT_EQ(request_once(std::string(kPut) + kLastGet).find("HTTP/1.1 200"), 0U);
}

TEST_F(ServerTest, AClientThatLeavesMidwayStoresNothing) {
    {
        RawClient client(server_.port());
        client.send_text("PUT /bkt/k HTTP/1.1\r\nHost: h\r\nContent-Length: 500\r\n\r\nhello");
    }
    EXPECT_EQ(request_once(kLastGet).find("HTTP/1.1 404"), 0U);
}

TEST_F(ServerTest, WrongChecksumsStoreNothing) {
    EXPECT_NE(request_once("PUT /bkt/k HTTP/1.1\r\nConnection: close\r\nContent-Length: 5\r\n"
                           "x-amz-checksum-crc32c: AAAAAA==\r\n\r\nhello")
                  .find("<Code>BadDigest</Code>"),
              std::string::npos);
    EXPECT_NE(request_once("PUT /bkt/k HTTP/1.1\r\nConnection: close\r\nContent-Length: 5\r\nx-amz-content-sha256: "
                           "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\r\n\r\nhello")
                  .find("<Code>XAmzContentSHA256Mismatch</Code>"),
              std::string::npos);
    EXPECT_EQ(request_once(kLastGet).find("HTTP/1.1 404"), 0U);
}

TEST_F(ServerTest, FaultsShowOnTheWire) {
    request_once(std::string(kPut) + kLastGet);
    add_faults(R"([{"op":"GetObject","action":"slowdown","nth":1},{"op":"GetObject","action":"truncate","nth":2},
                   {"op":"GetObject","action":"corrupt","nth":3},{"op":"GetObject","action":"reset","nth":4},
                   {"op":"GetObject","action":"reset","bytes":2,"nth":5}])");
    EXPECT_EQ(request_once(kLastGet).find("HTTP/1.1 503"), 0U);
    EXPECT_TRUE(request_once(kLastGet).ends_with("\r\n\r\nhe"));
    EXPECT_TRUE(request_once(kLastGet).ends_with("\r\n\r\nhemlo"));
    EXPECT_EQ(request_once(kLastGet), "RESET");
    const std::string cut = request_once(kLastGet);
    EXPECT_TRUE(cut.ends_with("RESET")) << cut;
    EXPECT_TRUE(request_once(kLastGet).ends_with("\r\n\r\nhello"));
}

TEST_F(ServerTest, ALostReplyIsPerformedAndAResetIsNot) {
    add_faults(R"([{"op":"PutObject","key":"lost","action":"performed-but-reply-lost"},
                   {"op":"PutObject","key":"reset","action":"reset"}])");
    EXPECT_EQ(request_once("PUT /bkt/lost HTTP/1.1\r\nContent-Length: 1\r\n\r\na"), "RESET");
    EXPECT_EQ(request_once("PUT /bkt/reset HTTP/1.1\r\nContent-Length: 1\r\n\r\na"), "RESET");
    EXPECT_TRUE(simulator_.table().find("bkt", "lost"));
    EXPECT_FALSE(simulator_.table().find("bkt", "reset"));
}

TEST_F(ServerTest, ALateOneIsPerformedAfterTheReset) {
    add_faults(R"([{"op":"PutObject","action":"performed-late","ms":50}])");
    EXPECT_EQ(request_once("PUT /bkt/late HTTP/1.1\r\nContent-Length: 1\r\n\r\na"), "RESET");
    EXPECT_FALSE(simulator_.table().find("bkt", "late"));
    for (int i = 0; i < 1000 && !simulator_.table().find("bkt", "late"); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(simulator_.table().find("bkt", "late"));
}

TEST_F(ServerTest, ADamagedUploadIsBadDigest) {
    add_faults(R"([{"op":"PutObject","action":"corrupt"}])");
    EXPECT_NE(request_once("PUT /bkt/k HTTP/1.1\r\nConnection: close\r\nContent-Length: 9\r\n"
                           "x-amz-checksum-crc32c: 4waSgw==\r\n\r\n123456789")
                  .find("<Code>BadDigest</Code>"),
              std::string::npos);
}

TEST_F(ServerTest, HungRequestsAreReleased) {
    add_faults(R"([{"op":"PutObject","action":"hang"},{"op":"GetObject","action":"hang","bytes":1}])");
    RawClient put(server_.port());
    put.send_text(kPut);
    RawClient get(server_.port());
    get.send_text(kGet);
    wait_for_hung(2);
    RawClient admin(server_.port());
    admin.send_text("DELETE /_s3sim/faults HTTP/1.1\r\nConnection: close\r\n\r\n");
    EXPECT_EQ(admin.read_all().find("HTTP/1.1 200"), 0U);
    EXPECT_EQ(put.read_all(), "RESET");
    wait_for_hung(0);
}

TEST_F(ServerTest, AHungClientThatLeavesIsForgotten) {
    add_faults(R"([{"op":"GetObject","action":"hang"}])");
    {
        RawClient client(server_.port());
        client.send_text(kGet);
        wait_for_hung(1);
    }
    wait_for_hung(0);
}

TEST_F(ServerTest, BlanksComeBeforeTheResult) {
    request_once(std::string(kPut) + kLastGet);
    add_faults(R"([{"op":"GetObject","action":"blanks","ms":300}])");
    const std::string reply = request_once(kLastGet);
    EXPECT_NE(reply.find("Transfer-Encoding: chunked"), std::string::npos);
    EXPECT_TRUE(reply.ends_with("1\r\n \r\n1\r\n \r\n1\r\n \r\n5\r\nhello\r\n0\r\n\r\n")) << reply;
}

TEST_F(ServerTest, TheModelTakesItsTime) {
    Model model;
    model.latency_ms = 30;
    model.connection_mbps = 10;
    simulator_.set_model(model);
    const std::string body(1'000'000, 'x');
    const auto timed = [&](const std::string& request) {
        const TimePoint began = Clock::now();
        EXPECT_EQ(request_once(request).find("HTTP/1.1 200"), 0U);
        return std::chrono::duration<double>(Clock::now() - began).count();
    };
    // Never faster than the model; how much slower depends on what else the machine does.
    EXPECT_GE(timed("PUT /bkt/k HTTP/1.1\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n" + body), 0.129);
    EXPECT_GE(timed(kLastGet), 0.129);
}

TEST_F(ServerTest, AdminSpeaksJson) {
    EXPECT_NE(request_once("GET /_s3sim/counters HTTP/1.1\r\nConnection: close\r\n\r\n").find("\"connections\""),
              std::string::npos);
    EXPECT_NE(request_once("POST /_s3sim/model HTTP/1.1\r\nConnection: close\r\nContent-Length: 19\r\n\r\n"
                           "{\"latency_ms\": 1.5}")
                  .find("\"latency_ms\":1.5"),
              std::string::npos);
    EXPECT_EQ(simulator_.model().latency_ms, 1.5);
    EXPECT_EQ(request_once("POST /_s3sim/model HTTP/1.1\r\nConnection: close\r\nContent-Length: 1\r\n\r\n{")
                  .find("HTTP/1.1 400"),
              0U);
    EXPECT_EQ(request_once("GET /_s3sim/nothing HTTP/1.1\r\nConnection: close\r\n\r\n").find("HTTP/1.1 404"), 0U);
}

}  // namespace
}  // namespace ckptfs::s3sim
