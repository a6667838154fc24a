// SPDX-License-Identifier: Apache-2.0
// Reports for machines: one JSON object (RFC 8259), one line. Bytes that are not UTF-8 become U+FFFD. And what files on
// a disk hold of it, as CBOR (RFC 8949). Pure. Only for files that make or read these: it brings the JSON library with
// it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ckptfs {

// In the order in which they are written.
using Json = nlohmann::ordered_json;

[[nodiscard]] inline std::string json_line(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Nothing that ckptfs writes has one. get() makes a whole number of it, which is undefined where that is too large.
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
