// SPDX-License-Identifier: Apache-2.0
// The process's environment, passed in so that tests have their own.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ckptfs {

// The value of a variable; empty if it is unset or empty, which the AWS tools treat alike.
using Environment = std::function<std::optional<std::string>(const char* name)>;

[[nodiscard]] Environment process_environment();
// Names of all variables that are set.
[[nodiscard]] std::vector<std::string> environment_names();

}  // namespace ckptfs
