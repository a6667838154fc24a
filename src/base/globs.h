// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ckptfs {

// Shell wildcards (fnmatch(3)) against a file name.
[[nodiscard]] bool matches_any(const std::string& name, const std::vector<std::string>& globs);

}  // namespace ckptfs
