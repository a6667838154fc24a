// SPDX-License-Identifier: Apache-2.0
// Messages to systemd, or to another supervisor: the protocol of sd_notify(3), one datagram each to $NOTIFY_SOCKET.
// Does nothing if that is not set.
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

    // The watchdog's period for this process; zero if no watchdog waits for alive(). Calling that at half the period is
    // enough.
    [[nodiscard]] Milliseconds watchdog() const { return watchdog_; }

    void ready(const std::string& status) const;
    void alive() const;
    // Asks the service manager to wait for at least `patience` from now.
    void stopping(const std::string& status, Milliseconds patience) const;

private:
    void tell(const std::string& message) const;

    std::string socket_;
    Milliseconds watchdog_{0};
};

}  // namespace ckptfs
