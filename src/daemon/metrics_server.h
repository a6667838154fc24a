// SPDX-License-Identifier: Apache-2.0
// The metrics of a mount, served over HTTP.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ckptfs/status.h"
#include "daemon/metrics.h"

namespace ckptfs {

// Answers GET /metrics until it is destroyed.
// Threads: `figures` is called on threads of the server, and not after the destructor.
class MetricsServer {
public:
    using Figures = std::function<MountFigures()>;

    // `address`: as parse_address() returns it; port 0 for any.
    static Result<std::unique_ptr<MetricsServer>> create(const std::string& address, Figures figures);
    virtual ~MetricsServer() = default;
    [[nodiscard]] virtual int port() const = 0;
};

}  // namespace ckptfs
