// SPDX-License-Identifier: Apache-2.0
// Keeps the metrics of a mount where monitoring looks for them: on an address, in a file for the node exporter's
// textfile collector, both or neither.
//
// Where one of them cannot be had, that is logged and tried again: the daemon that had the port may just be ending.
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
    // The file is as old as this at most.
    static constexpr Milliseconds kPeriod{10'000};

    struct Places {
        // Of parse_address().
        std::string address;
        std::string file;
    };
    // Tasks of the executor may hang, and outlive it: it waits for none. The timer outlives it.
    MetricsPublisher(Places places, Timer& timer, Executor& executor, MetricsServer::Figures figures);
    // Nothing is called any more, and the file is removed: its values are stale.
    ~MetricsPublisher();
    MetricsPublisher(const MetricsPublisher&) = delete;
    MetricsPublisher& operator=(const MetricsPublisher&) = delete;

private:
    class State;

    const std::shared_ptr<State> state_;
    std::unique_ptr<Periodic> periodic_;
};

}  // namespace ckptfs
