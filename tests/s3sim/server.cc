// SPDX-License-Identifier: Apache-2.0
#include "server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "connection.h"

namespace ckptfs::s3sim {
namespace {

constexpr std::size_t kScratchBytes = std::size_t{256} * 1024;
constexpr int kSocketBufferBytes = 4 * 1024 * 1024;
constexpr Duration kSweepEvery = std::chrono::seconds(1);

int checked(int result, const std::string& what) {
    if (result < 0) {
        throw std::system_error(errno, std::generic_category(), what);
    }
    return result;
}

template <class T>
void set_option(int fd, int level, int name, T value) {
    setsockopt(fd, level, name, &value, sizeof(value));
}

int listen_on(const std::string& address, std::uint16_t port) {
    const int fd = checked(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket");
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    // Inherited by accepted sockets; the window scale is settled while they connect, so it has to be set here.
    set_option(fd, SOL_SOCKET, SO_RCVBUF, kSocketBufferBytes);
    set_option(fd, SOL_SOCKET, SO_SNDBUF, kSocketBufferBytes);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    if (inet_pton(AF_INET, address.c_str(), &name.sin_addr) != 1) {
        close(fd);
        throw std::system_error(EINVAL, std::generic_category(), "not an IPv4 address: " + address);
    }
    if (bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) < 0 || listen(fd, 1024) < 0) {
        const int error = errno;
        close(fd);
        throw std::system_error(error, std::generic_category(), "listen on " + address + ":" + std::to_string(port));
    }
    return fd;
}

std::uint16_t bound_port(int fd) {
    sockaddr_in name{};
    socklen_t size = sizeof(name);
    checked(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size), "getsockname");
    return ntohs(name.sin_port);
}

}  // namespace

// One event loop, its thread, and the connections that live there.
class Server::Worker final : public EventLoop::Handler {
public:
    Worker(Server& server, Duration idle_timeout)
        : idle_timeout_(idle_timeout), scratch_(kScratchBytes), environment_{loop_,
                                                                             server.application_,
                                                                             server.pool_,
                                                                             server.shaper_,
                                                                             scratch_,
                                                                             [this](Connection& connection) { retire(connection); }} {}
    ~Worker() override { stop(); }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    EventLoop& loop() { return loop_; }
    void start() {
        loop_.wake_at(sweep_id_, Clock::now() + kSweepEvery);
        thread_ = std::thread([this] {
            loop_.run();
            connections_.clear();
        });
    }
    void stop() {
        if (thread_.joinable()) {
            loop_.stop();
            thread_.join();
        }
    }
    void adopt(int fd, TlsContext* tls) {
        loop_.post([this, fd, tls] {
            auto connection = std::make_unique<Connection>(environment_, tls ? tls->accept(fd) : make_plain_stream(fd));
            Connection* raw = connection.get();
            connections_.emplace(raw, std::move(connection));
            raw->on_wake();
        });
    }
    void release_hung() {
        loop_.post([this] { for_each_connection([](Connection& connection) { connection.release_hung(); }); });
    }
    void on_ready(std::uint32_t /*events*/) override {}
    void on_wake() override {
        for_each_connection([this](Connection& connection) { connection.close_if_idle(Clock::now(), idle_timeout_); });
        loop_.wake_at(sweep_id_, Clock::now() + kSweepEvery);
    }

private:
    void retire(Connection& connection) {
        loop_.post([this, gone = &connection] { connections_.erase(gone); });
    }
    template <class Action>
    void for_each_connection(Action action) {
        for (const auto& [raw, connection] : connections_) {
            action(*connection);
        }
    }

    const Duration idle_timeout_;
    EventLoop loop_;
    const EventLoop::HandlerId sweep_id_ = loop_.add(*this);
    std::vector<std::byte> scratch_;
    Connection::Environment environment_;
    std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
    std::thread thread_;
};

// Accepts on the first worker's loop and deals the connections out in turn.
class Server::Listener final : public EventLoop::Handler {
public:
    Listener(Server& server, int fd) : server_(server), fd_(fd), id_(loop().add(*this)) {
        loop().watch(id_, fd_, EPOLLIN | EPOLLET);
    }
    ~Listener() override { close(fd_); }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    void on_wake() override { accept_all(); }
    void on_ready(std::uint32_t /*events*/) override { accept_all(); }

private:
    EventLoop& loop() { return server_.workers_.front()->loop(); }
    void accept_all() {
        while (true) {
            const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd >= 0) {
                set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
                server_.workers_[next_++ % server_.workers_.size()]->adopt(fd, server_.options_.tls);
            } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                loop().wake_at(id_, Clock::now() + std::chrono::milliseconds(50));
                return;
            } else if (errno != EINTR && errno != ECONNABORTED) {
                return;
            }
        }
    }

    Server& server_;
    const int fd_;
    const EventLoop::HandlerId id_;
    std::size_t next_ = 0;
};

Server::Server(ServerOptions options, Application& application, ChunkPool& pool, TrafficShaper& shaper)
    : options_(std::move(options)), application_(application), pool_(pool), shaper_(shaper) {}

Server::~Server() {
    stop();
}

void Server::start() {
    const int fd = listen_on(options_.address, options_.port);
    port_ = bound_port(fd);
    for (unsigned i = 0; i < options_.threads; ++i) {
        workers_.push_back(std::make_unique<Worker>(*this, options_.idle_timeout));
    }
    listener_ = std::make_unique<Listener>(*this, fd);
    for (const auto& worker : workers_) {
        worker->start();
    }
}

void Server::stop() {
    for (const auto& worker : workers_) {
        worker->stop();
    }
    listener_.reset();
    workers_.clear();
}

void Server::release_hung() {
    for (const auto& worker : workers_) {
        worker->release_hung();
    }
}

}  // namespace ckptfs::s3sim
