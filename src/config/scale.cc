// SPDX-License-Identifier: Apache-2.0
#include "config/scale.h"

#include <algorithm>

namespace ckptfs {
namespace {

// Neither kind of thread ever waits for anything but work, so more of them than processors only take turns: on two
// processors two and one of them were faster by a tenth than eight and two. The second one answers a stat while the
// first copies a request.
constexpr int kLeastFuseThreads = 2;
constexpr int kMostFuseThreads = 8;
// A thread sends about 2 GB/s, and 1 GB/s with TLS; eight fill a 100 Gbit/s link.
constexpr int kProcessorsPerHttpThread = 2;
constexpr int kMostHttpThreads = 8;
// What fills 1 GB/s, a thread's share with TLS: requests of 4 MiB that take 30 ms to their first byte and come at 90
// MB/s move 54 MB/s each, and a quarter of the connections is kept for others.
constexpr int kConnectionsPerHttpThread = 24;
constexpr int kMostConnections = 192;

}  // namespace

Config scaled(Config config, int processors) {
    if (config.mount.fuse_threads == 0) {
        config.mount.fuse_threads = std::clamp(processors, kLeastFuseThreads, kMostFuseThreads);
    }
    if (config.store.http_threads == 0) {
        config.store.http_threads = std::clamp(processors / kProcessorsPerHttpThread, 1, kMostHttpThreads);
    }
    if (config.store.max_connections == 0) {
        config.store.max_connections = std::clamp(config.store.http_threads * kConnectionsPerHttpThread,
                                                  StoreConfig::kFewestConnections, kMostConnections);
    }
    // The other quarter is for reads that a process waits for, and for commits.
    config.write.max_parts_in_flight = std::max(1, config.store.max_connections * 3 / 4);
    config.read.max_requests_ahead = config.write.max_parts_in_flight;
    return config;
}

}  // namespace ckptfs
