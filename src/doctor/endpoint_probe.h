// SPDX-License-Identifier: Apache-2.0
// The way to a store: one request that needs no credentials, and which every HTTP server answers somehow.
// Threads: blocks, as long as the transport takes to connect and be answered.
#pragma once

#include <functional>
#include <string>

#include "ckptfs/clock.h"
#include "ckptfs/http.h"
#include "doctor/findings.h"

namespace ckptfs::doctor {

// facts.url and facts.region are known; sets what the answer's headers say. True where there was an answer.
bool probe_endpoint(HttpTransport& transport, const Clock& clock, const std::function<bool()>& interrupted,
                    Findings& findings);

}  // namespace ckptfs::doctor
