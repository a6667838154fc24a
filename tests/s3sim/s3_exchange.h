// SPDX-License-Identifier: Apache-2.0
#pragma once

// One S3 request from head to reply: checks, faults, the operation, the model's latency, the counters.

#include <memory>

#include "exchange.h"

namespace ckptfs::s3sim {

class Simulator;

// The simulator must outlive the exchange.
std::unique_ptr<Exchange> make_s3_exchange(Simulator& simulator, HttpRequest request);

}  // namespace ckptfs::s3sim
