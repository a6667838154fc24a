// SPDX-License-Identifier: Apache-2.0
#include "fs/pinned_removal.h"

#include "base/store_wait.h"

namespace ckptfs::fs {

namespace {

Status remove_pinned(ObjectStore& store, const std::string& key, const std::string& etag) {
    return wait_for<void>([&](auto done) { store.remove({key, etag}, done); });
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

Status remove_version(ObjectStore& store, const std::string& key, const std::string& etag) {
    Status removed = remove_pinned(store, key, etag);
    if (!is_another_version(removed)) {
        return removed;
    }
    const Result<std::string> current = current_etag(store, key);
    if (!current) {
        return failure(current.error());
    }
    // A store that refuses the ETag it shows itself is asked without.
    return *current == etag ? remove_pinned(store, key, "") : Status{};
}

Status remove_current(ObjectStore& store, const std::string& key, const std::string& known) {
    if (!known.empty()) {
        Status removed = remove_pinned(store, key, known);
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
    return *current == known ? remove_pinned(store, key, "") : remove_version(store, key, *current);
}

}  // namespace ckptfs::fs
