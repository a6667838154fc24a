// SPDX-License-Identifier: Apache-2.0
#include "unit/http/raw_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace ckptfs {
namespace {

constexpr std::string_view kEndOfHead = "\r\n\r\n";

std::size_t content_length(std::string_view head) {
    constexpr std::string_view kName = "\r\nContent-Length: ";
    const std::size_t position = head.find(kName);
    if (position == std::string_view::npos) {
        return 0;
    }
    return std::strtoull(head.data() + position + kName.size(), nullptr, 10);
}

}  // namespace

bool RawConnection::receive_more() {
    std::array<char, 65536> buffer{};
    const ssize_t count = recv(socket_, buffer.data(), buffer.size(), 0);
    if (count <= 0) {
        return false;
    }
    received_.append(buffer.data(), static_cast<std::size_t>(count));
    return true;
}

std::optional<std::string> RawConnection::read_head() {
    std::size_t end = received_.find(kEndOfHead);
    while (end == std::string::npos) {
        if (!receive_more()) {
            return std::nullopt;
        }
        end = received_.find(kEndOfHead);
    }
    std::string head = received_.substr(0, end + kEndOfHead.size());
    received_.erase(0, end + kEndOfHead.size());
    return head;
}

std::optional<RawRequest> RawConnection::read_request() {
    std::optional<std::string> head = read_head();
    if (!head) {
        return std::nullopt;
    }
    const std::size_t length = content_length(*head);
    while (received_.size() < length) {
        if (!receive_more()) {
            return std::nullopt;
        }
    }
    RawRequest request{std::move(*head), received_.substr(0, length)};
    received_.erase(0, length);
    return request;
}

void RawConnection::send(std::string_view text) {
    while (!text.empty()) {
        const ssize_t count = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
        if (count <= 0) {
            return;
        }
        text.remove_prefix(static_cast<std::size_t>(count));
    }
}

void RawConnection::reset() {
    const linger hard{1, 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
}

void RawConnection::wait_for_close() {
    while (receive_more()) {
        received_.clear();
    }
}

void RawConnection::drain_slowly(std::size_t total, std::size_t step, std::chrono::milliseconds pause) {
    std::vector<char> buffer(step);
    std::size_t taken = received_.size();
    received_.clear();
    while (taken < total) {
        std::this_thread::sleep_for(pause);
        const ssize_t count = recv(socket_, buffer.data(), std::min(step, total - taken), 0);
        if (count <= 0) {
            return;
        }
        taken += static_cast<std::size_t>(count);
    }
}

RawServer::RawServer(Serve serve, std::uint8_t host, std::uint16_t port)
    : serve_(std::move(serve)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~0xFFU) | host);
    address.sin_port = htons(port);
    socklen_t size = sizeof address;
    // Small, so that a body that is not read soon stands still at the sender as well.
    const int receive_buffer = 64 * 1024;
    if (listener_ < 0 || setsockopt(listener_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer) != 0 ||
        bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 64) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        throw std::runtime_error("no listening socket");
    }
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { accept_all(); });
}

RawServer::~RawServer() {
    shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    {
        const std::lock_guard lock(mutex_);
        for (const int socket : sockets_) {
            shutdown(socket, SHUT_RDWR);
        }
    }
    for (std::thread& thread : serving_) {
        thread.join();
    }
    close(listener_);
}

std::string RawServer::url(std::string_view path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + std::string(path);
}

void RawServer::accept_all() {
    while (true) {
        const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (socket < 0) {
            return;
        }
        ++connections_;
        const std::lock_guard lock(mutex_);
        sockets_.push_back(socket);
        serving_.emplace_back([this, socket] {
            RawConnection connection(socket);
            serve_(connection);
            const std::lock_guard closing(mutex_);
            std::erase(sockets_, socket);
            close(socket);
        });
    }
}

RawServer::Serve answer_all(std::string body) {
    return [body = std::move(body)](RawConnection& connection) {
        while (connection.read_request()) {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
        }
    };
}

}  // namespace ckptfs
