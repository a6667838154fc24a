// SPDX-License-Identifier: Apache-2.0
// Probes the way to a store: one request that needs no credentials, and to which every HTTP server replies somehow.
// Threads: blocks, as long as the transport takes to connect and be answered.
#pragma once

#include <functional>
#include <string>

#include "ckptfs/clock.h"
#include "ckptfs/http.h"
#include "doctor/findings.h"

namespace ckptfs::doctor {

// Asks facts.url, and sets what the reply's headers say. True if there was a reply.
bool probe_endpoint(HttpTransport& transport, const Clock& clock, const std::function<bool()>& interrupted,
                    Findings& findings);

}  // namespace ckptfs::doctor
