// SPDX-License-Identifier: Apache-2.0
// The metrics of a mount, in the text format of Prometheus, by its naming conventions. Every sample is labelled with
// the mount point, so that several mounts of one machine can be told apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckptfs/buffer_pool.h"
#include "ckptfs/clock.h"
#include "ckptfs/http.h"
#include "ckptfs/log.h"
#include "daemon/mount_status.h"
#include "fs/file_counters.h"
#include "read/block_cache.h"
#include "s3/request_sender.h"
#include "s3/request_statistics.h"

namespace prometheus {
struct MetricFamily;
}

namespace ckptfs {

struct MountFigures {
    MountStatus status;
    std::int64_t start_time_seconds = 0;
    fs::FileStatistics files;
    ReadStatistics reading;
    PoolUsage memory;
    s3::S3Statistics store;
    std::vector<s3::OperationStatistics> operations;
    HttpStatistics http;
    LogCounts log;
    // As Session::longest_request().
    Milliseconds worker_busy{0};
};

// Pure.
[[nodiscard]] std::string metrics_text(const MountFigures& figures);

// The metrics as families, for metrics_server.cc.
[[nodiscard]] std::vector<prometheus::MetricFamily> metric_families(const MountFigures& figures);

}  // namespace ckptfs
