// SPDX-License-Identifier: Apache-2.0
#include "base/environment.h"

#include <cstdlib>

namespace ckptfs {

Environment process_environment() {
    return [](const char* name) -> std::optional<std::string> {
        const char* value = std::getenv(name);
        if (value == nullptr || *value == '\0') {
            return std::nullopt;
        }
        return std::string(value);
    };
}

}  // namespace ckptfs
