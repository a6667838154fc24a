// SPDX-License-Identifier: Apache-2.0
// The families of metrics that the text and the server have in common. Only for metrics.cc and metrics_server.cc.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "daemon/metrics.h"

namespace ckptfs {

[[nodiscard]] std::vector<prometheus::MetricFamily> metric_families(const MountFigures& figures);

}  // namespace ckptfs
