// SPDX-License-Identifier: Apache-2.0
#include "base/globs.h"

#include <fnmatch.h>

#include <algorithm>

namespace ckptfs {

bool matches_any(const std::string& name, const std::vector<std::string>& globs) {
    return std::any_of(globs.begin(), globs.end(),
                       [&](const std::string& glob) { return fnmatch(glob.c_str(), name.c_str(), 0) == 0; });
}

}  // namespace ckptfs
