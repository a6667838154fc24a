// SPDX-License-Identifier: Apache-2.0
// Reports for machines: one JSON object (RFC 8259), one line. Bytes that are not UTF-8 become U+FFFD. Pure.
// Only for files that make such reports: it brings the JSON library with it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ckptfs {

// In the order in which they are written.
using Json = nlohmann::ordered_json;

[[nodiscard]] inline std::string json_line(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ckptfs
