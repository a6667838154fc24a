// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ckptfs {

// Whether a file name matches one of these shell patterns (fnmatch(3)).
[[nodiscard]] bool matches_any(const std::string& name, const std::vector<std::string>& globs);

}  // namespace ckptfs
