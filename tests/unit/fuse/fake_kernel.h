// SPDX-License-Identifier: Apache-2.0
// The kernel's end of a FUSE connection, over a SOCK_SEQPACKET pair: sends requests and reads answers as linux/fuse.h
// lays them out.
// Threads: one thread uses it.
#pragma once

#include <linux/fuse.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"

namespace ckptfs {

struct FuseAnswer {
    std::uint64_t unique = 0;
    // 0, or an errno; for a notification its code.
    int error = 0;
    std::string body;

    template <class T>
    [[nodiscard]] T as(std::size_t offset = 0) const {
        T value{};
        if (body.size() >= offset) {
            std::memcpy(&value, body.data() + offset, std::min(sizeof value, body.size() - offset));
        }
        return value;
    }
};

template <class T>
std::string raw(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

inline std::string name_argument(std::string_view name) {
    return std::string(name) + '\0';
}

class FakeKernel {
public:
    static constexpr std::chrono::seconds kDeadline{20};

    FakeKernel();
    // The daemon's end; to be taken once.
    FileDescriptor connection() { return std::move(daemon_end_); }
    void close() { kernel_end_.reset(); }

    std::uint64_t send(std::uint32_t opcode, std::uint64_t node, std::string_view body = {}, pid_t thread = 100);
    void interrupt(std::uint64_t unique);
    // As if the INTERRUPT had overtaken its request.
    void interrupt_next();

    // The next message within the time; nothing else must come first.
    std::optional<FuseAnswer> receive(std::chrono::milliseconds time = kDeadline);
    FuseAnswer call(std::uint32_t opcode, std::uint64_t node, std::string_view body = {});
    fuse_init_out init(std::uint32_t flags, std::uint32_t flags2);
    // With everything offered.
    fuse_init_out init();

    // Common requests.
    fuse_entry_out create(std::string_view name, std::uint64_t* handle);
    std::uint64_t send_write(std::uint64_t node, std::uint64_t handle, std::uint64_t offset, std::string_view data,
                             int flags = 0);
    std::uint64_t send_read(std::uint64_t node, std::uint64_t handle, std::uint64_t offset, std::uint32_t size);

private:
    FileDescriptor kernel_end_;
    FileDescriptor daemon_end_;
    std::uint64_t next_unique_ = 2;
};

}  // namespace ckptfs
