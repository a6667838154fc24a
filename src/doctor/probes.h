// SPDX-License-Identifier: Apache-2.0
// What `ckptfs doctor` asks of a store: of what ckptfs relies on, what is there?
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
    // Of the mount: empty, or ends in '/'.
    std::string prefix;
    // Ends in '/': what is made lies below.
    std::string place;
    bool read_only = false;
    // Of the rates: bytes each way at most.
    std::uint64_t most_bytes = 0;
    int max_connections = 1;
    // Where the credentials come from.
    std::string credentials;
    // Called before each step, to show progress; may be missing.
    std::function<void(Probe)> asking;
};

// `plain`: the same store without checksum headers; null where it is asked without them already. Adds to the findings
// all that are about the store, but the endpoint, the clock and what is left behind.
void probe_store(PatientStore& store, PatientStore* plain, const ProbeRequest& request, Findings& findings);

// Removes what is known, and then what is listed; says what could not be.
void clean_up(PatientStore& store, const Litter& litter, const std::string& place, Findings& findings);

}  // namespace ckptfs::doctor
