// SPDX-License-Identifier: Apache-2.0
#include "write/processor_wait.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "base/file_descriptor.h"
#include "base/numbers.h"

namespace ckptfs {

std::optional<ProcessorTimes> processor_times() {
    const FileDescriptor file(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
    std::array<char, 128> text{};
    const ssize_t size = file ? ::read(file.get(), text.data(), text.size()) : -1;
    if (size <= 0) {
        return std::nullopt;
    }
    std::string_view rest(text.data(), static_cast<std::size_t>(size));
    const auto ran = take_number<long long>(rest);
    rest.remove_prefix(std::min<std::size_t>(1, rest.size()));
    const auto waited = take_number<long long>(rest);
    if (!ran || !waited) {
        return std::nullopt;
    }
    return ProcessorTimes{std::chrono::nanoseconds(*ran), std::chrono::nanoseconds(*waited)};
}

}  // namespace ckptfs
