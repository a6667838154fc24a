// SPDX-License-Identifier: Apache-2.0
#include "stream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace ckptfs::s3sim {
namespace {

IoResult io_result(ssize_t moved) {
    if (moved > 0) {
        return {IoStatus::kMoved, static_cast<std::size_t>(moved)};
    }
    if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return {IoStatus::kWouldBlock, 0};
    }
    return {IoStatus::kClosed, 0};
}

class PlainStream final : public Stream {
public:
    explicit PlainStream(int fd) : fd_(fd) {}
    ~PlainStream() override { close(fd_); }
    PlainStream(const PlainStream&) = delete;
    PlainStream& operator=(const PlainStream&) = delete;

    int fd() const override { return fd_; }
    IoResult receive(std::span<std::byte> buffer) override {
        return io_result(TEMP_FAILURE_RETRY(recv(fd_, buffer.data(), buffer.size(), 0)));
    }
    IoResult send(std::span<iovec> pieces) override {
        msghdr message{};
        message.msg_iov = pieces.data();
        message.msg_iovlen = pieces.size();
        return io_result(TEMP_FAILURE_RETRY(sendmsg(fd_, &message, MSG_NOSIGNAL)));
    }
    void finish_sending() override { shutdown(fd_, SHUT_WR); }

private:
    const int fd_;
};

}  // namespace

void Stream::reset_on_close() {
    const linger at_once{1, 0};
    setsockopt(fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

std::unique_ptr<Stream> make_plain_stream(int fd) {
    return std::make_unique<PlainStream>(fd);
}

}  // namespace ckptfs::s3sim
