// SPDX-License-Identifier: Apache-2.0
#include "base/json_text.h"

#include <nlohmann/json.hpp>

namespace ckptfs {
namespace {

using Json = nlohmann::json;

// Replies nest two deep.
constexpr int kDeepest = 8;

void add_members(const Json& object, const std::string& prefix, int depth,
                 std::map<std::string, std::string>& members) {
    for (const auto& [name, value] : object.items()) {
        if (value.is_string()) {
            members[prefix + name] = value.get<std::string>();
        } else if (value.is_object() && depth < kDeepest) {
            add_members(value, prefix + name + '.', depth + 1, members);
        } else if (value.is_number() || value.is_boolean()) {
            members[prefix + name] = value.dump();
        }
    }
}

}  // namespace

Result<std::map<std::string, std::string>> json_members(std::string_view text) {
    const Json document = Json::parse(text, nullptr, false);
    if (!document.is_object()) {
        return failure(EPROTO, "not a JSON object");
    }
    std::map<std::string, std::string> members;
    add_members(document, "", 0, members);
    return members;
}

Result<std::string> json_with_members(std::string_view text, const std::map<std::string, std::string>& members) {
    using Ordered = nlohmann::ordered_json;
    // Writing recurses as deep as the text nests.
    bool is_deep = false;
    const auto watch_depth = [&is_deep](int depth, Ordered::parse_event_t, const Ordered&) {
        is_deep = is_deep || depth > kDeepest;
        return true;
    };
    Ordered document = Ordered::parse(text, watch_depth, false);
    if (!document.is_object()) {
        return failure(EPROTO, "not a JSON object");
    }
    if (is_deep) {
        return failure(EPROTO, "its JSON nests too deep");
    }
    for (const auto& [name, value] : members) {
        document[name] = value;
    }
    return document.dump(-1, ' ', false, Ordered::error_handler_t::replace);
}

}  // namespace ckptfs
