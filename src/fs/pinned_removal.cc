// SPDX-License-Identifier: Apache-2.0
#include "fs/pinned_removal.h"

#include "base/store_wait.h"

namespace ckptfs::fs {

namespace {

Status remove_pinned(ObjectStore& store, const RemoveRequest& version) {
    return wait_for<void>([&](auto done) { store.remove(version, done); });
}

bool is_another_version(const Status& removed) {
    return !removed && removed.error().errno_value == ESTALE;
}

}  // namespace

Result<std::string> current_etag(ObjectStore& store, const std::string& key) {
    const Result<ObjectInfo> object = wait_for<ObjectInfo>([&](auto done) { store.head(key, done); });
    if (object) {
        return object->etag;
    }
    return object.error().errno_value == ENOENT ? Result<std::string>(std::string()) : failure(object.error());
}

Status remove_version(ObjectStore& store, const RemoveRequest& version) {
    Status removed = remove_pinned(store, version);
    if (!is_another_version(removed)) {
        return removed;
    }
    const Result<std::string> current = current_etag(store, version.key);
    if (!current) {
        return failure(current.error());
    }
    if (*current != version.if_match) {
        return {};
    }
    // A store that refuses the ETag it shows itself is asked without.
    RemoveRequest what_is_there = version;
    what_is_there.if_match.clear();
    return remove_pinned(store, what_is_there);
}

Status remove_current(ObjectStore& store, const std::string& key, const std::string& known) {
    if (!known.empty()) {
        Status removed = remove_pinned(store, {key, known});
        if (!is_another_version(removed)) {
            return removed;
        }
    }
    const Result<std::string> current = current_etag(store, key);
    if (!current) {
        return failure(current.error());
    }
    if (current->empty()) {
        return {};
    }
    return *current == known ? remove_pinned(store, key) : remove_version(store, {key, *current});
}

}  // namespace ckptfs::fs
