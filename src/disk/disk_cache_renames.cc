// SPDX-License-Identifier: Apache-2.0
// Renames what is kept of objects that are renamed or sent to the bucket, and moves its users.
#include <algorithm>
#include <map>
#include <utility>

#include "disk/disk_cache.h"
#include "disk/disk_space.h"

namespace ckptfs {

void DiskCache::renamed(const ObjectInfo& object, const ObjectInfo& copy) {
    rename_later(in_bucket(object), in_bucket(copy));
}

// After what was written of the object before: one thread writes.
void DiskCache::rename_later(const ObjectInfo& object, const ObjectInfo& copy) {
    for (const bool is_encoded : {false, true}) {
        const auto from = kept_version(config_.store, object, is_encoded);
        const auto to = kept_version(config_.store, copy, is_encoded);
        if (!from || !to || from->identity == to->identity) {
            continue;
        }
        post_write([this, from = *from, to = *to] { rename_now(from, to); });
    }
}

void DiskCache::sent(const ObjectInfo& acknowledged, const std::string& etag) {
    ObjectInfo before = acknowledged;
    before.etag = sent_.note(acknowledged.etag, etag);
    ObjectInfo sent = acknowledged;
    sent.etag = etag;
    rename_later(before, sent);
    if (before.etag != acknowledged.etag) {
        // A copy with a description of its own, whose source was sent before.
        rename_later(acknowledged, sent);
    }
}

void DiskCache::renamed(std::vector<RenamedObject> objects) {
    for (RenamedObject& object : objects) {
        object.etag = sent_.in_bucket(object.etag);
        object.copy_etag = sent_.in_bucket(object.copy_etag);
    }
    std::erase_if(objects, [this](const RenamedObject& object) {
        const bool is_known = may_have(object.etag) || !users_of(file_name_prefix(config_.store, object.etag)).empty();
        return !is_known || (object.copy_etag == object.etag && object.copy_write_id.empty());
    });
    for (const RenamedObject& object : objects) {
        // A rename of the copy may follow at once.
        has_made(file_name_prefix(config_.store, object.copy_etag));
    }
    if (!objects.empty()) {
        post_write([this, objects = std::move(objects)] { rename_now(objects); });
    }
}

void DiskCache::rename_now(const std::vector<RenamedObject>& objects) {
    // One version may have been under several names.
    std::multimap<std::string, const RenamedObject*> by_name;
    for (const RenamedObject& object : objects) {
        by_name.emplace(file_name_prefix(config_.store, object.etag), &object);
    }
    const std::size_t length = by_name.begin()->first.size();
    for (const KeptOnDisk& kept : list_kept(config_.directory)) {
        const auto [first, last] = by_name.equal_range(kept.name.substr(0, length));
        const std::string header = first == last || is_failing() ? "" : header_on_disk(config_.directory, kept.name);
        for (auto each = first; each != last; ++each) {
            if (const auto rename = kept_rename(config_.store, header, *each->second)) {
                rename_on_disk(rename->from, rename->to, rename->size);
            }
        }
    }
    // Users of files of which nothing is kept yet.
    for (const auto& [begin, object] : by_name) {
        for (const std::shared_ptr<KeptFileOnDisk>& user : users_of(begin)) {
            if (const auto rename = kept_rename(config_.store, user->header(), *object)) {
                move_users(rename->from.file_name(), rename->to);
            }
        }
    }
}

void DiskCache::rename_now(const KeptVersion& from, const KeptVersion& to) {
    const auto size = is_failing() ? std::nullopt : size_on_disk(config_.directory, from);
    if (size) {
        rename_on_disk(from, to, *size);
    } else {
        move_users(from.file_name(), to);
    }
}

void DiskCache::rename_on_disk(const KeptVersion& from, const KeptVersion& to, std::uint64_t size) {
    KeptFileOwner& owner = *this;
    const bool is_copied = std::make_shared<KeptFileOnDisk>(owner, from, size)
                               ->copy_to(*std::make_shared<KeptFileOnDisk>(owner, to, size));
    move_users(from.file_name(), to);
    if (is_copied) {
        remove_kept(config_.directory, from.file_name());
    }
}

DiskCache::Users DiskCache::users_of(const std::string& begin) const {
    Users users;
    const MutexLock lock(mutex_);
    for (auto each = users_.lower_bound(begin); each != users_.end() && each->first.starts_with(begin); ++each) {
        if (auto user = each->second.lock()) {
            users.push_back(std::move(user));
        }
    }
    return users;
}

void DiskCache::move_users(const std::string& from, const KeptVersion& to) {
    const std::string name = to.file_name();
    for (const std::shared_ptr<KeptFileOnDisk>& user : users_of(from)) {
        user->becomes(to);
        add_user(name, user);
    }
    const MutexLock lock(mutex_);
    users_.erase(from);
}

}  // namespace ckptfs
