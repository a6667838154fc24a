// SPDX-License-Identifier: Apache-2.0
#pragma once

// Listens, and spreads connections over a few event-loop threads.
// Construct, then start(); stop() or destruction ends all threads and closes all connections.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exchange.h"
#include "stream.h"
#include "traffic_shaper.h"

namespace ckptfs::s3sim {

struct ServerOptions {
    std::string address = "127.0.0.1";
    std::uint16_t port = 0;  // 0: the system picks one
    unsigned threads = 2;
    Duration idle_timeout = std::chrono::seconds(60);
    TlsContext* tls = nullptr;  // not owned; must outlive the server
};

class Server {
public:
    // All must outlive the server.
    Server(ServerOptions options, Application& application, ChunkPool& pool, TrafficShaper& shaper);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Throws std::system_error where the address cannot be had.
    void start();
    std::uint16_t port() const { return port_; }
    void stop();

    // Resets the connections that a fault keeps silent. From any thread.
    void release_hung();

private:
    class Worker;
    class Listener;

    const ServerOptions options_;
    Application& application_;
    ChunkPool& pool_;
    TrafficShaper& shaper_;
    std::uint16_t port_ = 0;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::unique_ptr<Listener> listener_;
};

}  // namespace ckptfs::s3sim
