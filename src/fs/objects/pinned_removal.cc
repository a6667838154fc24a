// SPDX-License-Identifier: Apache-2.0
#include "fs/objects/pinned_removal.h"

#include <utility>

#include "base/store_wait.h"
#include "ckptfs/store_limits.h"

namespace ckptfs::fs {

namespace {

Status remove_pinned(ObjectStore& store, const RemoveRequest& version) {
    return wait_for<void>([&](auto done) { store.remove(version, done); });
}

bool is_another_version(const Status& removed) {
    return !removed && removed.error().errno_value == ESTALE;
}

// Than what was there at that time.
bool is_younger(ObjectStore& store, const std::string& key, WallTime time) {
    const Result<ObjectInfo> object = wait_for<ObjectInfo>([&](auto done) { store.head(key, done); });
    return object && object->last_modified > time + kTimesDifferBy;
}

}  // namespace

Result<std::optional<std::string>> current_etag(ObjectStore& store, const std::string& key) {
    const Result<ObjectInfo> object = wait_for<ObjectInfo>([&](auto done) { store.head(key, done); });
    if (!object && object.error().errno_value == ENOENT) {
        return std::optional<std::string>();
    }
    if (!object) {
        return failure(object.error());
    }
    return object->etag.empty() ? listed_etag(store, key).map([](std::string etag) { return std::optional(etag); })
                                : Result<std::optional<std::string>>(object->etag);
}

Result<ObjectInfo> listed_object(ObjectStore& store, const std::string& key) {
    ListRequest request;
    request.prefix = key;
    request.max_keys = 1;
    Result<ListResponse> listed = wait_for<ListResponse>([&](auto done) { store.list(request, done); });
    if (!listed) {
        return failure(std::move(listed.error()));
    }
    const bool is_there = !listed->objects.empty() && listed->objects.front().key == key;
    return is_there ? std::move(listed->objects.front()) : ObjectInfo();
}

Result<std::string> listed_etag(ObjectStore& store, const std::string& key) {
    return listed_object(store, key).map([](const ObjectInfo& listed) { return listed.etag; });
}

Status remove_version(ObjectStore& store, const RemoveRequest& version) {
    Status removed = remove_pinned(store, version);
    if (!is_another_version(removed)) {
        return removed;
    }
    const Result<std::optional<std::string>> current = current_etag(store, version.key);
    if (!current) {
        return failure(current.error());
    }
    if (!*current || **current != version.if_match) {
        return {};
    }
    // A store may refuse an ETag that only its listings show: it is asked without one.
    RemoveRequest what_is_there = version;
    what_is_there.if_match.clear();
    return remove_pinned(store, what_is_there);
}

Status remove_current(ObjectStore& store, const Clock& clock, const std::string& key, const std::string& known) {
    const WallTime asked = clock.wall_now();
    if (!known.empty()) {
        RemoveRequest version(key, known);
        version.is_judged_by_caller = true;
        Status removed = remove_pinned(store, version);
        if (!is_another_version(removed)) {
            return removed;
        }
        if (removed.error().outcome_unknown && is_younger(store, key, asked)) {
            return {};
        }
    }
    const Result<std::optional<std::string>> current = current_etag(store, key);
    if (!current) {
        return failure(current.error());
    }
    if (!*current) {
        return {};
    }
    const bool is_named = !(*current)->empty() && **current != known;
    return is_named ? remove_version(store, {key, **current}) : remove_pinned(store, key);
}

}  // namespace ckptfs::fs
