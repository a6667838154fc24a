// SPDX-License-Identifier: Apache-2.0
// The probes of a store that `ckptfs doctor` makes: which of the features that ckptfs relies on are there.
//
// A probe that fails does not hide the others: only those that need what it did not get are not asked. Everything is
// written below one name that no mount shows, and is remembered as litter before it is made.
// Threads: blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "doctor/findings.h"
#include "doctor/patient_store.h"

namespace ckptfs::doctor {

struct ProbeRequest {
    // Prefix of the mount: empty, or ends in '/'.
    std::string prefix;
    // Prefix of everything that is made; ends in '/'.
    std::string place;
    bool read_only = false;
    // The most bytes to move in each direction to measure rates.
    std::uint64_t most_bytes = 0;
    int max_connections = 1;
    // Where the credentials come from.
    std::string credentials;
    // Called before each step, to show progress; may be missing.
    std::function<void(Probe)> asking;
};

// `plain`: the same store without checksum headers; null if `store` is already asked without them. Adds all findings
// about the store, except the endpoint, the clock, slow-downs and what is left behind.
void probe_store(PatientStore& store, PatientStore* plain, const ProbeRequest& request, Findings& findings);

// Removes the litter, and then what is listed below `place`; adds the finding of what could not be removed.
void clean_up(PatientStore& store, const Litter& litter, const std::string& place, Findings& findings);

}  // namespace ckptfs::doctor
