// SPDX-License-Identifier: Apache-2.0
#include "base/environment.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

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

std::vector<std::string> environment_names() {
    std::vector<std::string> names;
    for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
        const std::string_view variable(*each);
        names.emplace_back(variable.substr(0, variable.find('=')));
    }
    return names;
}

}  // namespace ckptfs
