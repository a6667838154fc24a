// SPDX-License-Identifier: Apache-2.0
#include "base/processor_wait.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "base/file_descriptor.h"

namespace ckptfs {

std::optional<ProcessorTimes> processor_times() {
    const FileDescriptor file(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
    std::array<char, 128> text{};
    const ssize_t size = file ? ::read(file.get(), text.data(), text.size()) : -1;
    if (size <= 0) {
        return std::nullopt;
    }
    const char* const end = text.data() + size;
    long long ran = 0;
    long long waited = 0;
    const auto first = std::from_chars(text.data(), end, ran);
    if (first.ec != std::errc() || first.ptr == end) {
        return std::nullopt;
    }
    if (std::from_chars(first.ptr + 1, end, waited).ec != std::errc()) {
        return std::nullopt;
    }
    return ProcessorTimes{std::chrono::nanoseconds(ran), std::chrono::nanoseconds(waited)};
}

}  // namespace ckptfs
