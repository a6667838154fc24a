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
    // What is said if all is well.
    std::string_view yes;
    // If it is not: how bad that is, what is said, what that means.
    Severity no_severity;
    std::string_view no;
    std::string_view means;
    // The option that helps, and its value; empty if none does.
    std::string_view option;
    std::string_view option_value;
    // How bad it is if the answer could not be determined.
    Severity failed_severity;
};

[[nodiscard]] const ProbeRule& rule_of(Probe probe);
[[nodiscard]] std::string_view name_of(Probe probe);

}  // namespace ckptfs::doctor
