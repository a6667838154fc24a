// SPDX-License-Identifier: Apache-2.0
#include "fs/moves/rename_recovery.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <utility>

#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"
#include "fs/moves/rename_copies.h"
#include "fs/objects/marker_objects.h"
#include "fs/objects/pinned_removal.h"

namespace ckptfs::fs {

namespace {

// What lies below one of the two directories.
struct Tree {
    bool has_marker = false;
    // The directory's marker, if it is this rename's.
    std::optional<StoredMarker> hidden_by;
    // All other keys.
    std::vector<ObjectInfo> objects;
};

// Empty where another rename, or none, hides the directory.
Result<std::optional<StoredMarker>> marker_of(ObjectStore& store, const Clock& clock, const DirectoryMarker& rename,
                                              const std::string& key) {
    Result<StoredMarker> stored = read_marker(store, clock, key);
    if (!stored) {
        return stored.error().errno_value == ENOENT ? Result<std::optional<StoredMarker>>(std::nullopt)
                                                    : failure(std::move(stored.error()));
    }
    const bool ours = stored->marker && marks(*stored->marker, key) && stored->marker->rename_id == rename.rename_id;
    return ours ? std::optional(std::move(*stored)) : std::nullopt;
}

Result<Tree> look_at(ObjectStore& store, const Clock& clock, const DirectoryMarker& rename, const std::string& key) {
    Result<std::vector<ObjectInfo>> listed = list_all(store, key);
    if (!listed) {
        return failure(std::move(listed.error()));
    }
    Tree tree;
    for (ObjectInfo& object : *listed) {
        if (object.key != key) {
            tree.objects.push_back(std::move(object));
            continue;
        }
        tree.has_marker = true;
        if (may_hide_directory(object.size)) {
            auto marker = marker_of(store, clock, rename, key);
            if (!marker) {
                return failure(std::move(marker.error()));
            }
            tree.hidden_by = std::move(*marker);
        }
    }
    return tree;
}

// A directory beside the destination. Its name is not made of the destination's: programs look for checkpoints by a
// part of a name.
DirectoryMarker set_aside_from(const DirectoryMarker& rename, const std::string& id) {
    const std::string& destination = rename.destination;
    const std::size_t parent = destination.substr(0, destination.size() - 1).rfind('/') + 1;
    DirectoryMarker aside = rename;
    aside.source = destination;
    aside.destination = destination.substr(0, parent) + ".undone-" + id.substr(0, 8) + "/";
    return aside;
}

bool is_refused_there(const Error& error) {
    return is_refused_for_good(error) || error.errno_value == ENAMETOOLONG;
}

// Copies what is missing, except what can have no name there. What an earlier repair has copied is neither copied again
// nor replaced: it may be all that is left of another version, and not every store knows the condition of a copy.
Status copy_missing(ObjectStore& store, const DirectoryMarker& aside, const std::vector<ObjectInfo>& objects,
                    const RemovalTerms& terms, OwnCopies& own) {
    Result<Copies> there = copies_there(store, aside, objects);
    if (!there) {
        return failure(std::move(there.error()));
    }
    own.made = std::move(*there);
    std::vector<ObjectInfo> missing;
    std::copy_if(objects.begin(), objects.end(), std::back_inserter(missing), [&](const ObjectInfo& object) {
        const std::size_t size = aside.destination.size() + object.key.size() - aside.source.size();
        return size <= kMaxKeyBytes && !own.made.contains(object.key);
    });
    return copy_tree(store, missing, aside, terms.may_go_on, own);
}

// What the store refuses is left out: the destination would be hidden as long as that is tried, for ever.
Result<Copies> copy_aside(ObjectStore& store, const DirectoryMarker& aside, const std::vector<ObjectInfo>& objects,
                          const RemovalTerms& terms) {
    OwnCopies own;
    Status copied = copy_missing(store, aside, objects, terms, own);
    if (!copied && is_refused_there(copied.error())) {
        log_warning(escaped(aside.destination + ": the store refuses to copy files there: " + copied.error().message));
        copied = {};
    }
    return copied ? Result<Copies>(std::move(own.made)) : failure(std::move(copied.error()));
}

// For a store without conditional deletes, what is there is looked up once more.
Result<std::vector<RemoveRequest>> moved_objects(ObjectStore& store, const std::string& directory, const Copies& copies,
                                                 DeletePins pins) {
    std::vector<RemoveRequest> requests;
    if (pins == DeletePins::kHonoured) {
        for (const auto& [key, copied] : copies) {
            requests.emplace_back(key, copied.source_etag);
        }
        return requests;
    }
    const Result<std::vector<ObjectInfo>> listed = list_all(store, directory);
    if (!listed) {
        return failure(listed.error());
    }
    for (const ObjectInfo& object : *listed) {
        const auto copied = copies.find(object.key);
        if (copied != copies.end() && copied->second.source_etag == object.etag) {
            requests.emplace_back(object.key, object.etag);
        }
    }
    return requests;
}

// Moves the objects as they were listed. What has changed since, or cannot be moved, stays, as others'
// (`others_remain`).
Status set_aside(ObjectStore& store, const DirectoryMarker& rename, const std::vector<ObjectInfo>& objects,
                 const RemovalTerms& terms, bool& others_remain) {
    // Where an earlier repair was ended, this one goes on with what that has copied.
    DirectoryMarker aside = set_aside_from(rename, rename.rename_id);
    Result<Copies> copies = copy_aside(store, aside, objects, terms);
    if (!copies && copies.error().errno_value == EBUSY) {
        // What is there is not known to be the same.
        aside = set_aside_from(rename, rename.writer_id);
        copies = copy_aside(store, aside, objects, terms);
    }
    if (!copies) {
        return failure(std::move(copies.error()));
    }
    Result<std::vector<RemoveRequest>> moved = moved_objects(store, rename.destination, *copies, terms.pins);
    if (!moved) {
        return failure(std::move(moved.error()));
    }
    others_remain = others_remain || moved->size() < objects.size();
    if (moved->empty()) {
        return {};
    }
    Status removed = remove_versions(store, std::move(*moved), terms);
    if (removed) {
        log_warning(escaped(rename.destination + " held files that may be copies of what " + rename.source +
                            " holds no longer; they were moved to " + aside.destination));
    }
    return removed;
}

// Removes the copies as they were listed, and sets aside what may be one; `others_remain` tells whether the directory
// holds more.
Status clear_destination(ObjectStore& store, const RenameFacts& facts, const std::vector<ObjectInfo>& destination,
                         const RemovalTerms& terms, bool& others_remain) {
    const Result<std::vector<ObjectInfo>> source = list_all(store, facts.rename.source);
    if (!source) {
        return failure(source.error());
    }
    const Result<SortedObjects> sorted = sort_by_origin(store, facts, destination, *source);
    if (!sorted) {
        return failure(sorted.error());
    }
    std::vector<RemoveRequest> keys;
    for (const ObjectInfo& copy : sorted->copies) {
        keys.emplace_back(copy.key, copy.etag);
    }
    Status cleared = remove_versions(store, std::move(keys), terms);
    others_remain = sorted->has_others;
    if (cleared && !sorted->in_doubt.empty()) {
        cleared = set_aside(store, facts.rename, sorted->in_doubt, terms, others_remain);
    }
    if (cleared && others_remain) {
        log_warning(escaped(facts.rename.destination + " holds files that are not known to be copies of " +
                            facts.rename.source + "; they stay, and it is shown with them"));
    }
    return cleared;
}

// Removes the source's keys that still hold what was copied.
Status remove_copied(ObjectStore& store, const std::string& directory, const Tree& tree,
                     const std::vector<MovedName>& copied, const RemovalTerms& terms, bool& others_remain) {
    std::map<std::string, std::string> etags;
    for (const MovedName& each : copied) {
        // If a name was changed meanwhile, its last version is the one that was copied.
        etags[each.name] = each.etag;
    }
    std::vector<RemoveRequest> keys;
    for (const ObjectInfo& object : tree.objects) {
        const auto found = etags.find(object.key.substr(directory.size()));
        if (found != etags.end() && (found->second.empty() || found->second == object.etag)) {
            keys.emplace_back(object.key, object.etag);
        }
    }
    others_remain = keys.size() < tree.objects.size();
    return remove_versions(store, std::move(keys), terms);
}

// Removes the marker of a directory whose keys are gone, or makes it an ordinary one if the directory stays. What
// failed there before the rename still counts as failed.
Status remove_marker(ObjectStore& store, const std::string& key, const StoredMarker& marker, bool keep_directory,
                     const MayGoOn& may_go_on) {
    if (keep_directory) {
        const Result<PutResponse> shown = write_empty_marker(store, key, marker.etag, marker.made);
        return shown ? Status{} : failure(shown.error());
    }
    RemoveRequest version(key, marker.etag);
    version.may_send = may_go_on;
    return remove_version(store, version);
}

}  // namespace

Status show_source(ObjectStore& store, const Clock& clock, const DirectoryMarker& rename) {
    const auto marker = marker_of(store, clock, rename, rename.source);
    if (!marker) {
        return failure(marker.error());
    }
    if (!*marker) {
        return {};
    }
    return remove_marker(store, rename.source, **marker, !(*marker)->marker->source_was_implied, {});
}

namespace {

// `known`: all but when the destination was hidden.
Status undo(ObjectStore& store, const Clock& clock, const RenameFacts& known, const RemovalTerms& terms) {
    const DirectoryMarker& rename = known.rename;
    if (Status shown = show_source(store, clock, rename); !shown) {
        return shown;
    }
    const Result<Tree> copies = look_at(store, clock, rename, rename.destination);
    if (!copies) {
        return failure(copies.error());
    }
    if (!copies->hidden_by) {
        // Nothing was copied, or it has been removed before.
        return {};
    }
    RenameFacts facts = known;
    facts.hidden_since = copies->hidden_by->modified;
    bool others_remain = false;
    if (Status cleared = clear_destination(store, facts, copies->objects, terms, others_remain); !cleared) {
        return cleared;
    }
    if (facts.own.may_come_late) {
        // A copy that comes then is hidden.
        return {};
    }
    return remove_marker(store, rename.destination, *copies->hidden_by,
                         others_remain || rename.replaces_empty_directory, terms.may_go_on);
}

}  // namespace

Status roll_back(ObjectStore& store, const Clock& clock, const DirectoryMarker& rename, const NameList& names,
                 const RemovalTerms& terms, const OwnCopies& own) {
    const std::vector<MovedName> announced = names.value_or(std::vector<MovedName>());
    return undo(store, clock, {rename, announced, own}, terms);
}

Status roll_back_without_record(ObjectStore& store, const Clock& clock, const DirectoryMarker& rename,
                                const NameList& names, const RemovalTerms& terms) {
    const Result<std::vector<ObjectInfo>> source = list_all(store, rename.source);
    if (!source) {
        return failure(source.error());
    }
    const Result<Tree> destination = look_at(store, clock, rename, rename.destination);
    if (!destination) {
        return failure(destination.error());
    }
    if (!source->empty() || !destination->hidden_by) {
        const std::vector<MovedName> announced = names.value_or(std::vector<MovedName>());
        const OwnCopies none;
        RenameFacts facts{rename, announced, none};
        facts.lacks_record = true;
        return undo(store, clock, facts, terms);
    }
    return remove_marker(store, rename.destination, *destination->hidden_by,
                         !destination->objects.empty() || rename.replaces_empty_directory, terms.may_go_on);
}

Status finish(ObjectStore& store, const Clock& clock, const DirectoryMarker& rename, const NameList& names,
              const RemovalTerms& terms, const std::function<Status()>& move_failures) {
    const Result<Tree> destination = look_at(store, clock, rename, rename.destination);
    if (!destination) {
        return failure(destination.error());
    }
    if (destination->hidden_by) {
        if (!terms.may_go_on()) {
            return taken_over(rename.source);
        }
        if (Status moved = move_failures(); !moved) {
            return moved;
        }
        // The directory counts as made when it was hidden: before the failure records that were just written, by this
        // process or the one that renamed it.
        const StoredMarker& hidden = *destination->hidden_by;
        if (const auto shown = write_empty_marker(store, rename.destination, hidden.etag, hidden.modified); !shown) {
            return failure(shown.error());
        }
    }
    const Result<Tree> source = look_at(store, clock, rename, rename.source);
    if (!source) {
        return failure(source.error());
    }
    if (!source->hidden_by) {
        // The marker goes last, so that all else is gone; what is there now is a new directory that another process
        // made.
        return {};
    }
    std::vector<MovedName> moved = names.value_or(std::vector<MovedName>());
    if (!names) {
        for (const ObjectInfo& object : destination->objects) {
            moved.push_back({object.key.substr(rename.destination.size()), ""});
        }
    }
    bool others_remain = false;
    if (Status removed = remove_copied(store, rename.source, *source, moved, terms, others_remain); !removed) {
        return removed;
    }
    return remove_marker(store, rename.source, *source->hidden_by, others_remain, terms.may_go_on);
}

Status remove_late_copies(ObjectStore& store, const DirectoryMarker& rename, const Copies& copies,
                          const RemovalTerms& terms) {
    const Result<std::vector<ObjectInfo>> listed = list_all(store, rename.destination);
    if (!listed) {
        return failure(listed.error());
    }
    std::vector<RemoveRequest> late;
    for (const ObjectInfo& object : *listed) {
        const auto copied = copies.find(rename.source + object.key.substr(rename.destination.size()));
        const Result<bool> is_late = copied == copies.end() ? false : is_copy(store, object, copied->second);
        if (!is_late) {
            return failure(is_late.error());
        }
        if (*is_late) {
            late.emplace_back(object.key, object.etag);
        }
    }
    return remove_versions(store, std::move(late), terms);
}

}  // namespace ckptfs::fs
