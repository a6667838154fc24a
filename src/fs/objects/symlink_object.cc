// SPDX-License-Identifier: Apache-2.0
#include "fs/objects/symlink_object.h"

#include <cerrno>
#include <utility>

#include "base/numbers.h"
#include "base/text.h"
#include "base/uuid.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"

namespace ckptfs::fs {

namespace {

constexpr const char* kSymlinkMetadata = "ckptfs-symlink";

}  // namespace

PutRequest symlink_object(std::string key, std::string_view target) {
    std::string body(target);
    body.resize(next_marked_size(body.size()));
    PutRequest request;
    request.key = std::move(key);
    request.body = Payload::from_string(std::move(body));
    request.content_type = "application/octet-stream";
    request.metadata = {{kSymlinkMetadata, std::to_string(target.size())}, {kWriteIdMetadata, random_uuid()}};
    request.if_none_match = true;
    return request;
}

std::optional<std::uint64_t> symlink_size(const ObjectInfo& object) {
    const auto found = object.metadata.find(kSymlinkMetadata);
    if (found == object.metadata.end() || !has_marked_size(object.size)) {
        return std::nullopt;
    }
    const auto size = whole_number<std::uint64_t>(found->second);
    return size && *size > 0 && *size <= kMaxSymlinkTarget && *size <= object.size ? size : std::nullopt;
}

Result<std::string> symlink_target(const ObjectInfo& object, const Payload& body) {
    const std::optional<std::uint64_t> size = symlink_size(object);
    std::string target = body.to_string();
    if (size && *size <= target.size()) {
        target.resize(*size);
        if (target.find('\0') == std::string::npos) {
            return target;
        }
    }
    return failure(EIO, format("{}: the object of this symbolic link is damaged; remove it, and make it again",
                               escaped(object.key)));
}

}  // namespace ckptfs::fs
