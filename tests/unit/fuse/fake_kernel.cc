// SPDX-License-Identifier: Apache-2.0
#include "unit/fuse/fake_kernel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <csignal>

namespace ckptfs {
namespace {

constexpr std::size_t kLargestMessage = std::size_t{2} << 20;

}  // namespace

FakeKernel::FakeKernel() {
    // Writing to a closed end must be an error, as on /dev/fuse, and not a signal.
    std::signal(SIGPIPE, SIG_IGN);
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0) {
        kernel_end_ = FileDescriptor(ends[0]);
        daemon_end_ = FileDescriptor(ends[1]);
    }
}

std::uint64_t FakeKernel::send(std::uint32_t opcode, std::uint64_t node, std::string_view body, pid_t thread) {
    fuse_in_header header{};
    header.len = static_cast<std::uint32_t>(sizeof header + body.size());
    header.opcode = opcode;
    header.unique = next_unique_;
    header.nodeid = node;
    header.pid = static_cast<std::uint32_t>(thread);
    next_unique_ += 2;
    const std::string message = raw(header) + std::string(body);
    EXPECT_EQ(::send(kernel_end_.get(), message.data(), message.size(), 0), static_cast<ssize_t>(message.size()));
    return header.unique;
}

void FakeKernel::interrupt(std::uint64_t unique) {
    fuse_interrupt_in in{};
    in.unique = unique;
    send(FUSE_INTERRUPT, 0, raw(in));
}

void FakeKernel::interrupt_next() {
    interrupt(next_unique_ + 2);
}

std::optional<FuseAnswer> FakeKernel::receive(std::chrono::milliseconds time) {
    pollfd readable{kernel_end_.get(), POLLIN, 0};
    if (poll(&readable, 1, static_cast<int>(time.count())) != 1) {
        return std::nullopt;
    }
    std::string message(kLargestMessage, '\0');
    const ssize_t size = recv(kernel_end_.get(), message.data(), message.size(), 0);
    fuse_out_header header{};
    if (size < static_cast<ssize_t>(sizeof header)) {
        return std::nullopt;
    }
    std::memcpy(&header, message.data(), sizeof header);
    EXPECT_EQ(header.len, static_cast<std::uint32_t>(size));
    message.resize(static_cast<std::size_t>(size));
    return FuseAnswer{header.unique, header.unique == 0 ? header.error : -header.error, message.substr(sizeof header)};
}

FuseAnswer FakeKernel::call(std::uint32_t opcode, std::uint64_t node, std::string_view body) {
    const std::uint64_t unique = send(opcode, node, body);
    const auto answer = receive();
    EXPECT_TRUE(answer) << "no answer to opcode " << opcode;
    if (!answer) {
        return FuseAnswer{0, ETIMEDOUT, {}};
    }
    EXPECT_EQ(answer->unique, unique);
    return *answer;
}

fuse_init_out FakeKernel::init(std::uint32_t flags, std::uint32_t flags2) {
    fuse_init_in in{};
    in.major = FUSE_KERNEL_VERSION;
    in.minor = 39;
    in.max_readahead = 128 * 1024;
    in.flags = flags;
    in.flags2 = flags2;
    const FuseAnswer answer = call(FUSE_INIT, 0, raw(in));
    EXPECT_EQ(answer.error, 0);
    return answer.as<fuse_init_out>();
}

fuse_init_out FakeKernel::init() {
    return init(~std::uint32_t{0}, ~std::uint32_t{0});
}

fuse_entry_out FakeKernel::create(std::string_view name, std::uint64_t* handle) {
    fuse_create_in in{};
    in.flags = O_WRONLY | O_CREAT;
    in.mode = S_IFREG | 0644;
    const FuseAnswer answer = call(FUSE_CREATE, FUSE_ROOT_ID, raw(in) + name_argument(name));
    EXPECT_EQ(answer.error, 0);
    *handle = answer.as<fuse_open_out>(sizeof(fuse_entry_out)).fh;
    return answer.as<fuse_entry_out>();
}

std::uint64_t FakeKernel::send_write(std::uint64_t node, std::uint64_t handle, std::uint64_t offset,
                                     std::string_view data, int flags) {
    fuse_write_in in{};
    in.flags = static_cast<std::uint32_t>(flags);
    in.fh = handle;
    in.offset = offset;
    in.size = static_cast<std::uint32_t>(data.size());
    return send(FUSE_WRITE, node, raw(in) + std::string(data));
}

std::uint64_t FakeKernel::send_read(std::uint64_t node, std::uint64_t handle, std::uint64_t offset,
                                    std::uint32_t size) {
    fuse_read_in in{};
    in.fh = handle;
    in.offset = offset;
    in.size = size;
    return send(FUSE_READ, node, raw(in));
}

}  // namespace ckptfs
