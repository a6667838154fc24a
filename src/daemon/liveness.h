// SPDX-License-Identifier: Apache-2.0
// Whether the daemon still makes progress: a watchdog must not take that for granted.
//
// It checks the threads that never wait for the store: each FUSE worker has to come back from its request, and the
// executor and the timer have to run what they are given. A wait for the store is no hang: --retry-for ends it.
//
// Threads: check() on one thread. The parts outlive it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "ckptfs/clock.h"
#include "ckptfs/executor.h"

namespace ckptfs {

class Liveness {
public:
    struct Watched {
        Executor& executor;
        Timer& timer;
        // How long the kernel's oldest request has kept its worker.
        std::function<Milliseconds()> longest_request;
    };
    // Nothing may take longer than `patience`; check() is to be called that often.
    Liveness(Watched watched, Milliseconds patience);

    // Returns what is stuck, for the log; empty if nothing is.
    std::string check();

private:
    // Set when the task of a probe has run. Shared with the task, which may outlive this object.
    using Probe = std::shared_ptr<std::atomic<bool>>;
    static Probe answered();

    Watched watched_;
    const Milliseconds patience_;
    Probe executor_ = answered();
    Probe timer_ = answered();
};

}  // namespace ckptfs
