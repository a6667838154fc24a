// SPDX-License-Identifier: Apache-2.0
// A file descriptor that closes itself.
// Threads: a value; not synchronised.
#pragma once

#include <unistd.h>

#include <utility>

namespace ckptfs {

class FileDescriptor {
public:
    FileDescriptor() = default;
    explicit FileDescriptor(int fd) : fd_(fd) {}
    FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    FileDescriptor& operator=(FileDescriptor&& other) noexcept {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, -1);
        }
        return *this;
    }
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;
    ~FileDescriptor() { reset(); }

    [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
    [[nodiscard]] int get() const { return fd_; }
    [[nodiscard]] int release() { return std::exchange(fd_, -1); }
    void reset() {
        if (fd_ >= 0) {
            ::close(std::exchange(fd_, -1));
        }
    }

private:
    int fd_ = -1;
};

// Closes all descriptors from `first` on, however many there are, except `kept`.
inline void close_all_but(int kept, int first) {
    const auto from = static_cast<unsigned>(first);
    const auto spared = static_cast<unsigned>(kept);
    if (spared > from) {
        ::close_range(from, spared - 1, 0);
    }
    ::close_range(spared + 1, ~0U, 0);
}

}  // namespace ckptfs
