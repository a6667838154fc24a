// SPDX-License-Identifier: Apache-2.0
// A diagnosis for machines: one line of JSON. Pure.
#pragma once

#include <string>

#include "doctor/diagnosis.h"

namespace ckptfs::doctor {

[[nodiscard]] std::string json_of(const Diagnosis& diagnosis);

}  // namespace ckptfs::doctor
