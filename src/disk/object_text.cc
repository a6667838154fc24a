// SPDX-License-Identifier: Apache-2.0
#include "disk/object_text.h"

#include <cstdint>
#include <exception>
#include <map>

#include "base/json_line.h"

namespace ckptfs {

std::string text_of_object(const SeenObject& seen) {
    const ObjectInfo& info = seen.info;
    const Json json = {{"size", info.size},
                       {"etag", info.etag},
                       {"modified", info.last_modified.time_since_epoch().count()},
                       {"described", seen.is_described},
                       {"metadata", info.metadata},
                       {"type", info.content_type},
                       {"encoding", info.content_encoding},
                       {"class", info.storage_class},
                       {"headers", info.other_headers}};
    std::string text;
    Json::to_cbor(json, text);
    return text;
}

std::optional<SeenObject> object_of_text(std::string_view text) {
    try {
        const Json json = Json::from_cbor(text);
        if (has_fractions(json)) {
            return std::nullopt;
        }
        SeenObject seen;
        seen.info.size = json.at("size").get<std::uint64_t>();
        seen.info.etag = json.at("etag").get<std::string>();
        seen.info.last_modified = WallTime(WallTime::duration(json.at("modified").get<WallTime::rep>()));
        seen.is_described = json.at("described").get<bool>();
        seen.info.metadata = json.at("metadata").get<Metadata>();
        seen.info.content_type = json.at("type").get<std::string>();
        seen.info.content_encoding = json.at("encoding").get<std::string>();
        seen.info.storage_class = json.at("class").get<std::string>();
        seen.info.other_headers = json.at("headers").get<std::map<std::string, std::string>>();
        return seen;
    } catch (const std::exception&) {
        // The text is something else, or has lengths that no memory has.
        return std::nullopt;
    }
}

}  // namespace ckptfs
