// SPDX-License-Identifier: Apache-2.0
#include "tools/mount_leftovers.h"

#include <optional>
#include <utility>

#include "base/uuid.h"
#include "ckptfs/bucket_layout.h"
#include "fs/objects/directory_marker.h"
#include "fs/objects/marker_objects.h"
#include "fs/objects/tree_copy.h"

namespace ckptfs {
namespace {

struct Place {
    LeftoverKind kind;
    std::string_view directory;
};
constexpr Place kPlaces[] = {{LeftoverKind::kFile, kTemporaryPrefix},
                             {LeftoverKind::kFailureRecord, kFailedPrefix},
                             {LeftoverKind::kRenameRecord, kRenamesPrefix},
                             {LeftoverKind::kRenameNames, kRenameNamesPrefix},
                             {LeftoverKind::kUnsent, kUnsentPrefix}};

// Absent if the key is none of that kind; empty for kinds that are not of renames.
std::optional<std::string> rename_id_of(LeftoverKind kind, const std::string& prefix, const std::string& key) {
    if (kind == LeftoverKind::kRenameRecord) {
        return fs::recorded_paths(prefix, key)
                   ? std::optional(key.substr(prefix.size() + kRenamesPrefix.size(), kUuidSize))
                   : std::nullopt;
    }
    if (kind == LeftoverKind::kRenameNames) {
        std::string id = key.substr(prefix.size() + kRenameNamesPrefix.size());
        return is_uuid(id) ? std::optional(std::move(id)) : std::nullopt;
    }
    return std::string();
}

Status add_markers(ObjectStore& store, const Clock& clock, const std::vector<ObjectInfo>& objects,
                   std::set<std::string>& renames) {
    for (const ObjectInfo& object : objects) {
        if (!object.key.ends_with('/') || !fs::may_hide_directory(object.size)) {
            continue;
        }
        const Result<fs::StoredMarker> stored = fs::read_marker(store, clock, object.key);
        if (!stored && stored.error().errno_value != ENOENT) {
            return failure(stored.error());
        }
        if (stored && stored->marker && fs::marks(*stored->marker, object.key)) {
            renames.insert(stored->marker->rename_id);
        }
    }
    return {};
}

}  // namespace

std::string_view name_of(LeftoverKind kind) {
    switch (kind) {
        case LeftoverKind::kUpload:
            return "upload";
        case LeftoverKind::kFile:
            return "file";
        case LeftoverKind::kFailureRecord:
            return "failure";
        case LeftoverKind::kRenameRecord:
            return "rename";
        case LeftoverKind::kRenameNames:
            return "rename-names";
        case LeftoverKind::kUnsent:
            return "unsent";
    }
    return "";
}

Result<std::vector<MountLeftover>> mount_leftovers(ObjectStore& store, const std::string& prefix) {
    std::vector<MountLeftover> found;
    for (const Place& place : kPlaces) {
        Result<std::vector<ObjectInfo>> objects = fs::list_all(store, prefix + std::string(place.directory));
        if (!objects) {
            return failure(std::move(objects.error()));
        }
        for (ObjectInfo& object : *objects) {
            if (auto id = rename_id_of(place.kind, prefix, object.key)) {
                found.push_back({place.kind, std::move(object), *std::move(id)});
            }
        }
    }
    return found;
}

Result<std::set<std::string>> renames_with_markers(ObjectStore& store, const Clock& clock, const std::string& prefix) {
    std::set<std::string> renames;
    Status all = fs::for_each_page(
        store, prefix, [&](const std::vector<ObjectInfo>& page) { return add_markers(store, clock, page, renames); });
    return all ? Result<std::set<std::string>>(std::move(renames)) : failure(std::move(all.error()));
}

}  // namespace ckptfs
