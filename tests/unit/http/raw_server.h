// SPDX-License-Identifier: Apache-2.0
// A server that does to each connection whatever a test says, byte by byte.
//
// Threads: one thread accepts, one serves each connection; the destructor closes all sockets and joins.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace ckptfs {

struct RawRequest {
    // Request line and headers, as received.
    std::string head;
    std::string body;
};

class RawConnection {
public:
    explicit RawConnection(int socket) : socket_(socket) {}

    // Empty once the client has closed the connection.
    std::optional<RawRequest> read_request();
    std::optional<std::string> read_head();
    void send(std::string_view text);
    // The connection ends with RST instead of FIN.
    void reset();
    // Until the client closes it.
    void wait_for_close();
    // Takes `total` bytes, at most `step` at a time, with a pause before each.
    void drain_slowly(std::size_t total, std::size_t step, std::chrono::milliseconds pause);

private:
    bool receive_more();

    int socket_;
    std::string received_;
};

class RawServer {
public:
    using Serve = std::function<void(RawConnection&)>;

    // `host`: the last byte of an address of this machine, 127.0.0.*; port 0: any that is free.
    explicit RawServer(Serve serve, std::uint8_t host = 1, std::uint16_t port = 0);
    ~RawServer();
    RawServer(const RawServer&) = delete;
    RawServer& operator=(const RawServer&) = delete;

    [[nodiscard]] std::string url(std::string_view path) const;
    [[nodiscard]] std::uint16_t port() const { return port_; }
    [[nodiscard]] int connections() const { return connections_; }

private:
    void accept_all();

    Serve serve_;
    int listener_;
    std::uint16_t port_ = 0;
    std::atomic<int> connections_{0};
    std::mutex mutex_;
    std::vector<int> sockets_;          // guarded by mutex_
    std::vector<std::thread> serving_;  // guarded by mutex_
    std::thread accepting_;
};

// Answers every request with 200 and `body` until the client closes.
RawServer::Serve answer_all(std::string body);

}  // namespace ckptfs
