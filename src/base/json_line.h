// SPDX-License-Identifier: Apache-2.0
// Reports for programs: one JSON object (RFC 8259), one line. Bytes that are not UTF-8 become U+FFFD. Files on a disk
// hold such values as CBOR (RFC 8949). Pure. To be included only where these are made or read, because it includes the
// JSON library.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ckptfs {

// Members keep the order in which they were added.
using Json = nlohmann::ordered_json;

[[nodiscard]] inline std::string json_line(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Whether any number is a fraction. Nothing that ckptfs writes has one, and get() of a whole number is undefined if the
// fraction is too large for it.
[[nodiscard]] inline bool has_fractions(const Json& json) {
    std::vector<const Json*> left = {&json};
    while (!left.empty()) {
        const Json& value = *left.back();
        left.pop_back();
        if (value.is_number_float()) {
            return true;
        }
        if (value.is_structured()) {
            for (const Json& each : value) {
                left.push_back(&each);
            }
        }
    }
    return false;
}

}  // namespace ckptfs
