// SPDX-License-Identifier: Apache-2.0
// Publishes the metrics of a mount: over HTTP at an address, in a file for the node exporter's textfile collector, both
// or neither.
//
// If one of them fails, that is logged and tried again: the daemon that has the port may just be ending.
// Threads: used by one thread; `figures` is called on any, one call at a time for the file.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/periodic.h"
#include "ckptfs/clock.h"
#include "ckptfs/executor.h"
#include "daemon/metrics_server.h"

namespace ckptfs {

class MetricsPublisher {
public:
    // How often the file is written.
    static constexpr Milliseconds kPeriod{10'000};

    struct Places {
        // As parse_address() returns it; empty for none.
        std::string address;
        // Empty for none.
        std::string file;
    };
    // Tasks on `executor` may hang and outlive the publisher, which waits for none. The timer outlives it.
    MetricsPublisher(Places places, Timer& timer, Executor& executor, MetricsServer::Figures figures);
    // Calls nothing any more, and removes the file, because its values are stale.
    ~MetricsPublisher();
    MetricsPublisher(const MetricsPublisher&) = delete;
    MetricsPublisher& operator=(const MetricsPublisher&) = delete;

private:
    class State;

    const std::shared_ptr<State> state_;
    std::unique_ptr<Periodic> periodic_;
};

}  // namespace ckptfs
