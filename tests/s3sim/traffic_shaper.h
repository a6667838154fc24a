// SPDX-License-Identifier: Apache-2.0
#pragma once

// The rates of the model of S3, shared by all connections. Thread-safe.

#include <atomic>

#include "pacer.h"

namespace ckptfs::s3sim {

class TrafficShaper {
public:
    // Bytes per second, 0 for no limit. Each direction has the whole rate to itself.
    void set_rates(double per_connection, double total) {
        per_connection_.store(per_connection);
        inbound_.set_rate(total);
        outbound_.set_rate(total);
    }

    double per_connection() const { return per_connection_.load(); }
    SharedPacer& inbound() { return inbound_; }
    SharedPacer& outbound() { return outbound_; }

private:
    std::atomic<double> per_connection_{0};
    SharedPacer inbound_;
    SharedPacer outbound_;
};

}  // namespace ckptfs::s3sim
