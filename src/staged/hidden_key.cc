// SPDX-License-Identifier: Apache-2.0
#include "staged/hidden_key.h"

#include "base/text.h"
#include "base/uuid.h"
#include "ckptfs/bucket_layout.h"

namespace ckptfs {
namespace {

constexpr std::string_view kTag = "file-";

}  // namespace

std::string new_hidden_key(const HiddenPlace& place, const std::string& key) {
    const std::size_t name = key.rfind('/') + 1;
    const std::string tail = format("{}{}-{}/{}", kTag, place.mount_id, random_uuid(), key.substr(name));
    std::string hidden = hidden_prefix(place.prefix, key.substr(0, name)) + tail;
    return hidden.size() <= kMaxKeyBytes ? hidden : new_unseen_key(place, key);
}

std::string new_unseen_key(const HiddenPlace& place, const std::string& key) {
    return format("{}{}{}/{}", place.prefix, kTemporaryPrefix, random_uuid(), key.substr(key.rfind('/') + 1));
}

std::string hidden_prefix(const std::string& prefix, const std::string& directory) {
    return prefix + std::string(kTemporaryPrefix) + directory.substr(prefix.size());
}

std::optional<HiddenFile> parse_hidden_key(const std::string& prefix, std::string_view hidden) {
    const std::string top = prefix + std::string(kTemporaryPrefix);
    if (!hidden.starts_with(top)) {
        return std::nullopt;
    }
    hidden.remove_prefix(top.size());
    const std::size_t slash = hidden.rfind('/');
    if (slash == std::string_view::npos || slash + 1 == hidden.size()) {
        return std::nullopt;
    }
    const std::string_view name = hidden.substr(slash + 1);
    const std::string_view above = hidden.substr(0, slash);
    const std::size_t directory_end = above.rfind('/') + 1;
    const std::string_view tail = above.substr(directory_end);
    if (!tail.starts_with(kTag) || tail.size() != kTag.size() + 2 * kUuidSize + 1) {
        return std::nullopt;
    }
    const std::string_view mount_id = tail.substr(kTag.size(), kUuidSize);
    if (!is_uuid(mount_id) || !is_uuid(tail.substr(tail.size() - kUuidSize))) {
        return std::nullopt;
    }
    return HiddenFile{format("{}{}{}", prefix, above.substr(0, directory_end), name), std::string(mount_id)};
}

}  // namespace ckptfs
