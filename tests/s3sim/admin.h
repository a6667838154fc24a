// SPDX-License-Identifier: Apache-2.0
#pragma once

// The simulator's own interface under /_s3sim/: faults, counters, model, latest requests, sessions
// (keys that expire: POST {"access_key", "secret_key", "session_token", "valid_s"}). JSON both ways.

#include <memory>
#include <string_view>
#include <vector>

#include "exchange.h"
#include "faults.h"

namespace ckptfs::s3sim {

class Simulator;

inline constexpr std::string_view kAdminPrefix = "/_s3sim/";

// The simulator must outlive the exchange.
std::unique_ptr<Exchange> make_admin_exchange(Simulator& simulator, HttpRequest request);

// A list of {"op", "key", "part", "nth" | "every" | "times" | "after", "action", "code", "status", "message", "bytes",
// "ms", "mbps"}. Unknown members are errors: a misspelt rule would be a fault that never strikes.
Outcome<std::vector<FaultRule>> read_fault_rules(std::string_view json);

}  // namespace ckptfs::s3sim
