// SPDX-License-Identifier: Apache-2.0
// The tools' findings, for machines: one JSON object (RFC 8259), one line. Bytes of keys that are not UTF-8 become
// U+FFFD. Pure.
#pragma once

#include <string>

#include "tools/collect_garbage.h"
#include "tools/inspect_object.h"
#include "tools/verify_objects.h"

namespace ckptfs {

[[nodiscard]] std::string json_of(const ObjectReport& report);
[[nodiscard]] std::string json_of(const ObjectProblem& problem);
[[nodiscard]] std::string json_of(const VerifyTotals& totals);
[[nodiscard]] std::string json_of(const FoundLeftover& leftover);
[[nodiscard]] std::string json_of(const GarbageTotals& totals);

}  // namespace ckptfs
