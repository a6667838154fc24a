// SPDX-License-Identifier: Apache-2.0
#include "fs/moves/rename_copies.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/store_wait.h"
#include "ckptfs/store_limits.h"
#include "fs/objects/object_copy.h"

namespace ckptfs::fs {

namespace {

constexpr std::size_t kLooksAtOnce = 64;

// By the index of the key; empty if the key is empty, or there is no object.
using Descriptions = std::vector<std::optional<ObjectInfo>>;

Result<Descriptions> describe_all(ObjectStore& store, const std::vector<std::string>& keys) {
    Descriptions all(keys.size());
    Status described =
        for_each_in_parallel(keys.size(), kLooksAtOnce, [&](std::size_t index, std::function<void(Status)> done) {
            if (keys[index].empty()) {
                done({});
                return;
            }
            store.head(keys[index], [&all, index, done](Result<ObjectInfo> object) {
                if (object) {
                    all[index] = std::move(*object);
                }
                done(object || object.error().errno_value == ENOENT ? Status{} : failure(std::move(object.error())));
            });
        });
    return described ? Result<Descriptions>(std::move(all)) : failure(std::move(described.error()));
}

// One name below the two directories.
struct Candidate {
    // Below the destination: as it was listed, and as it is now.
    const ObjectInfo& listed;
    const ObjectInfo& object;
    // The source as it is now; empty if it is gone.
    const std::optional<ObjectInfo>& source;
    // ETags of the source's versions in the list of names.
    const std::vector<std::string>& announced;
    // Null where this process has made no copy of it.
    const Copied* copied;
    // This process knows so, or the age of the object shows it.
    bool is_saved_by_another;
};

bool is_copy_of_source(const Candidate& each) {
    if (!each.source || !is_copy_by_request(each.object, *each.source)) {
        return false;
    }
    // Without write IDs only sizes are compared, and that of another version says nothing.
    return !write_id_of(each.object).empty() || each.announced.empty() || each.announced.back() == each.source->etag;
}

// Whether it is a copy of a version that its source no longer holds, as this process has made it.
bool is_copy_of_former(const Candidate& each) {
    const std::string now = each.source ? each.source->etag : "";
    return each.copied != nullptr && each.copied->source_etag != now && each.copied->copy.etag == each.object.etag &&
           each.copied->copy.modified == each.listed.last_modified;
}

bool is_copy(const Candidate& each, const std::string& rename_id) {
    // Without a write ID, what is older than any copy, or was there before, only looks like one.
    const bool may_be = !write_id_of(each.object).empty() || !each.is_saved_by_another;
    return is_copy_of_rename(write_id_of(each.object), rename_id) ||
           (may_be && (is_copy_of_source(each) || is_copy_of_former(each)));
}

// A copy of a version that the source still holds is recognised by that version. For other copies ETags say nothing:
// another mount may have renamed the very file there, and a copy can have another ETag than its source. Nor do they say
// anything about the source: files of one checkpoint are often identical to those of another.
bool may_be_copy_of_former(const Candidate& each) {
    if (each.is_saved_by_another) {
        return false;
    }
    if (each.announced.empty() || !each.source) {
        return !each.announced.empty();
    }
    const bool is_only_version = std::all_of(each.announced.begin(), each.announced.end(),
                                             [&each](const std::string& etag) { return etag == each.source->etag; });
    return !is_only_version || each.source->last_modified >= each.object.last_modified;
}

// Whether the object is older than any copy, with a margin: one that is too small would show a part, one that is too
// large sets aside files, which loses nothing.
bool is_older(const ObjectInfo& object, const RenameFacts& facts) {
    return facts.own.none_begun ||
           (facts.hidden_since != WallTime{} && object.last_modified + kTimesDifferBy < facts.hidden_since);
}

void add(SortedObjects& sorted, const Candidate& each, const std::string& rename_id) {
    // Another version was saved since the listing.
    const bool is_another = each.object.etag != each.listed.etag;
    if (!is_another && is_copy(each, rename_id)) {
        sorted.copies.push_back(each.listed);
    } else if (!is_another && may_be_copy_of_former(each)) {
        sorted.in_doubt.push_back(each.listed);
    } else {
        sorted.has_others = true;
    }
}

std::string source_of(const DirectoryMarker& rename, const ObjectInfo& object) {
    return rename.source + object.key.substr(rename.destination.size());
}

std::vector<std::string> keys_of(const std::vector<ObjectInfo>& objects) {
    std::vector<std::string> keys;
    for (const ObjectInfo& object : objects) {
        keys.push_back(object.key);
    }
    return keys;
}

// For each object below the destination; empty where the source lacks it.
std::vector<std::string> source_keys(const DirectoryMarker& rename, const std::vector<ObjectInfo>& destination,
                                     const std::vector<ObjectInfo>& source) {
    const std::vector<std::string> listed = keys_of(source);
    const std::set<std::string> present(listed.begin(), listed.end());
    std::vector<std::string> keys;
    for (const ObjectInfo& object : destination) {
        std::string key = source_of(rename, object);
        keys.push_back(present.contains(key) ? std::move(key) : "");
    }
    return keys;
}

std::map<std::string, std::vector<std::string>> versions_by_key(const RenameFacts& facts) {
    std::map<std::string, std::vector<std::string>> versions;
    for (const MovedName& each : facts.names) {
        versions[facts.rename.source + each.name].push_back(each.etag);
    }
    return versions;
}

// Sizes alone would say too little.
bool is_same_file(const ObjectInfo& one, const ObjectInfo& other) {
    const std::string id = write_id_of(one);
    const bool has_id = !id.empty() && id == write_id_of(other);
    return one.size == other.size && (has_id || (!one.etag.empty() && one.etag == other.etag));
}

std::string copy_of(const DirectoryMarker& rename, const ObjectInfo& object) {
    return rename.destination + object.key.substr(rename.source.size());
}

}  // namespace

Result<SortedObjects> sort_by_origin(ObjectStore& store, const RenameFacts& facts,
                                     const std::vector<ObjectInfo>& destination,
                                     const std::vector<ObjectInfo>& source) {
    const Result<Descriptions> objects = describe_all(store, keys_of(destination));
    if (!objects) {
        return failure(objects.error());
    }
    const Result<Descriptions> sources = describe_all(store, source_keys(facts.rename, destination, source));
    if (!sources) {
        return failure(sources.error());
    }
    std::map<std::string, std::vector<std::string>> announced = versions_by_key(facts);
    SortedObjects sorted;
    for (std::size_t at = 0; at < destination.size(); ++at) {
        const std::string source_key = source_of(facts.rename, destination[at]);
        const auto copied = facts.own.made.find(source_key);
        const Copied* const made = copied == facts.own.made.end() ? nullptr : &copied->second;
        const std::optional<ObjectInfo>& object = (*objects)[at];
        if (object && facts.lacks_record && object->last_modified < facts.hidden_since) {
            sorted.has_others = true;
        } else if (object) {
            add(sorted,
                {destination[at], *object, (*sources)[at], announced[source_key], made,
                 facts.own.saved_by_others.contains(source_key) || is_older(*object, facts)},
                facts.rename.rename_id);
        }
    }
    return sorted;
}

Result<Copies> copies_there(ObjectStore& store, const DirectoryMarker& rename, const std::vector<ObjectInfo>& objects) {
    const Result<std::vector<ObjectInfo>> listed = list_all(store, rename.destination);
    if (!listed) {
        return failure(listed.error());
    }
    const std::vector<std::string> names = keys_of(*listed);
    const std::set<std::string> taken(names.begin(), names.end());
    std::vector<ObjectInfo> sources;
    std::vector<std::string> keys;
    for (const ObjectInfo& object : objects) {
        if (std::string key = copy_of(rename, object); taken.contains(key)) {
            sources.push_back(object);
            keys.push_back(std::move(key));
        }
    }
    const Result<Descriptions> described = describe_all(store, keys_of(sources));
    const Result<Descriptions> there = describe_all(store, keys);
    if (!described || !there) {
        return failure(described ? there.error() : described.error());
    }
    Copies copies;
    for (std::size_t at = 0; at < sources.size(); ++at) {
        const std::optional<ObjectInfo>& source = (*described)[at];
        const std::optional<ObjectInfo>& copy = (*there)[at];
        if (source && copy && !is_same_file(*source, *copy)) {
            return failure(EBUSY, keys[at] + " is not known to be a copy of " + source->key);
        }
        if (source && copy) {
            copies[source->key] = {sources[at].etag,
                                   ObjectVersion{copy->etag, copy->size, copy->size, copy->last_modified}};
        }
    }
    return copies;
}

Result<bool> is_copy(ObjectStore& store, const ObjectInfo& object, const Copied& copied) {
    if (copied.copy.etag != object.etag) {
        return false;
    }
    if (copied.write_id.empty()) {
        // Listings, and some stores' answers to copies, give fractions of seconds; descriptions do not.
        using std::chrono::seconds;
        return std::chrono::floor<seconds>(copied.copy.modified) == std::chrono::floor<seconds>(object.last_modified);
    }
    // For an object uploaded in parts, a listing gives the time at which the upload began, the answer the time at which
    // it ended.
    const Result<ObjectInfo> there = wait_for<ObjectInfo>([&](auto done) { store.head(object.key, done); });
    if (!there) {
        return there.error().errno_value == ENOENT ? Result<bool>(false) : failure(there.error());
    }
    return write_id_of(*there) == copied.write_id;
}

}  // namespace ckptfs::fs
