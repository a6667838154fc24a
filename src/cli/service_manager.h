// SPDX-License-Identifier: Apache-2.0
// What systemd, or whoever started us, is told: the protocol of sd_notify(3), a datagram a message to $NOTIFY_SOCKET.
// Does nothing where nobody listens.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <string>

#include "base/environment.h"
#include "ckptfs/clock.h"

namespace ckptfs {

class ServiceManager {
public:
    explicit ServiceManager(const Environment& environment);

    // Of this process; zero where nobody waits for alive(). Half of it is often enough.
    [[nodiscard]] Milliseconds watchdog() const { return watchdog_; }

    void ready(const std::string& status) const;
    void alive() const;
    // It must not lose patience for so long.
    void stopping(const std::string& status, Milliseconds patience) const;

private:
    void tell(const std::string& message) const;

    std::string socket_;
    Milliseconds watchdog_{0};
};

}  // namespace ckptfs
