// SPDX-License-Identifier: Apache-2.0
// What each answer to a probe of `ckptfs doctor` means. A table; pure.
#pragma once

#include <string_view>

#include "doctor/diagnosis.h"

namespace ckptfs::doctor {

struct ProbeRule {
    Probe probe;
    // What is said where all is well.
    std::string_view yes;
    // Where it is not: how bad, what is said, what that means.
    Severity no_severity;
    std::string_view no;
    std::string_view means;
    // Empty: none helps.
    std::string_view option;
    std::string_view option_value;
    // Where it could not be found out.
    Severity failed_severity;
};

[[nodiscard]] const ProbeRule& rule_of(Probe probe);

}  // namespace ckptfs::doctor
