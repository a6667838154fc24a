// SPDX-License-Identifier: Apache-2.0
// What each probe of `ckptfs doctor` is called, and what each answer to it means. A table; pure.
#pragma once

#include <string_view>

#include "doctor/diagnosis.h"

namespace ckptfs::doctor {

struct ProbeRule {
    Probe probe;
    // Stable, for machines: "if_none_match".
    std::string_view name;
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
[[nodiscard]] std::string_view name_of(Probe probe);

}  // namespace ckptfs::doctor
