// SPDX-License-Identifier: Apache-2.0
#include "daemon/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <limits>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "config/values.h"

namespace ckptfs {
namespace {

constexpr time_t kPatienceSeconds = 5;

// sd_watchdog_enabled(3): only for the process that WATCHDOG_PID names, where it does.
Milliseconds watchdog_of(const Environment& environment) {
    const auto time = environment("WATCHDOG_USEC");
    const auto process = environment("WATCHDOG_PID");
    if (!time || (process && *process != std::to_string(getpid()))) {
        return Milliseconds(0);
    }
    constexpr auto kLongest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    const auto microseconds = parse_number(*time, 1, kLongest);
    return microseconds ? std::chrono::duration_cast<Milliseconds>(Microseconds(*microseconds)) : Milliseconds(0);
}

}  // namespace

ServiceManager::ServiceManager(const Environment& environment)
    : socket_(environment("NOTIFY_SOCKET").value_or("")), watchdog_(watchdog_of(environment)) {}

void ServiceManager::ready(const std::string& status) const {
    tell(format("READY=1\nSTATUS={}", escaped(status)));
}

void ServiceManager::alive() const {
    tell("WATCHDOG=1");
}

void ServiceManager::stopping(const std::string& status, Milliseconds patience) const {
    tell(format("STOPPING=1\nSTATUS={}\nEXTEND_TIMEOUT_USEC={}", escaped(status), Microseconds(patience).count()));
}

void ServiceManager::tell(const std::string& message) const {
    sockaddr_un address{};
    if (socket_.empty() || socket_.size() >= sizeof address.sun_path) {
        return;
    }
    address.sun_family = AF_UNIX;
    socket_.copy(address.sun_path, socket_.size());
    if (socket_.front() == '@') {
        // unix(7): in the abstract namespace.
        address.sun_path[0] = '\0';
    }
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
    const FileDescriptor channel(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    // The service manager may be busy, and a message that is lost counts against us.
    const timeval limit{kPatienceSeconds, 0};
    if (!channel || setsockopt(channel.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
        sendto(channel.get(), message.data(), message.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
               size) < 0) {
        log_warning(format("cannot notify the service manager at {}: {}", escaped(socket_), escaped(message)));
    }
}

}  // namespace ckptfs
