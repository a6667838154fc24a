// SPDX-License-Identifier: Apache-2.0
// What other mounts change in the source while its files are copied: see fs/moves/directory_rename.h.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/store_wait.h"
#include "fs/moves/directory_rename.h"
#include "fs/moves/rename_copies.h"
#include "fs/objects/marker_objects.h"
#include "fs/objects/pinned_removal.h"

namespace ckptfs::fs {

namespace {

// A rename does not wait until a directory that is being emptied is empty.
constexpr int kListsAtMost = 5;

// Returns the present names, after the announced versions of those that have changed since: a copy of either version
// may be there.
std::vector<MovedName> with_former(const std::vector<MovedName>& announced, const std::vector<MovedName>& present) {
    std::map<std::string, std::string> etags;
    for (const MovedName& each : present) {
        etags[each.name] = each.etag;
    }
    std::vector<MovedName> all;
    std::copy_if(announced.begin(), announced.end(), std::back_inserter(all), [&etags](const MovedName& each) {
        const auto now = etags.find(each.name);
        return now != etags.end() && now->second != each.etag;
    });
    all.insert(all.end(), present.begin(), present.end());
    return all;
}

}  // namespace

// A file that was renamed between two pages may be on none. It has its new name before it loses the old one, so that a
// list that begins after the old one was missed has the new one.
Status DirectoryRename::list_source_at_rest() {
    for (int attempt = 0; attempt < kListsAtMost; ++attempt) {
        const std::vector<MovedName> before = names();
        if (Status listed = list_source(); !listed) {
            return listed;
        }
        std::set<std::string> present;
        for (const ObjectInfo& source : sources_) {
            present.insert(source.key.substr(move_.source.size()));
        }
        const auto is_present = [&present](const MovedName& each) { return present.contains(each.name); };
        if (pages_ <= 1 || std::all_of(before.begin(), before.end(), is_present)) {
            return {};
        }
    }
    return failure(EBUSY, move_.source + ": files vanish while this directory is renamed; try again");
}

Status DirectoryRename::remove_copies(std::vector<RemoveRequest> copies) {
    return copies.empty() ? Status() : remove_versions(store_, std::move(copies), {find_pins_(), while_held()});
}

// The removal of a copy of this process whose source has changed, or is gone. Empty if the copy is gone itself; EBUSY
// if another mount has saved the name since, perhaps by renaming the very file there: its ETag is the same then.
Result<std::optional<RemoveRequest>> DirectoryRename::outdated_copy(const std::string& source, const Copied& copied) {
    const std::string key = move_.destination + source.substr(move_.source.size());
    Result<ObjectInfo> there = wait_for<ObjectInfo>([&](auto done) { store_.head(key, done); });
    if (there && there->etag.empty()) {
        Result<std::string> etag = listed_etag(store_, key);
        if (!etag) {
            return failure(std::move(etag.error()));
        }
        there->etag = std::move(*etag);
    }
    const Result<bool> is_ours = there ? is_copy(store_, *there, copied) : failure(there.error());
    if (!is_ours) {
        const bool is_gone = is_ours.error().errno_value == ENOENT;
        return is_gone ? Result<std::optional<RemoveRequest>>(std::nullopt) : failure(is_ours.error());
    }
    if (!*is_ours) {
        own_.saved_by_others.insert(source);
        return failure(EBUSY, key + ": another mount has saved this file");
    }
    return std::optional(RemoveRequest(key, there->etag));
}

// New copies replace nothing, so that what another mount has saved in place of a former one stays.
Status DirectoryRename::remove_former_copies(const std::vector<std::string>& sources) {
    std::vector<RemoveRequest> former;
    for (const std::string& source : sources) {
        Result<std::optional<RemoveRequest>> copy = outdated_copy(source, own_.made.at(source));
        if (!copy) {
            return failure(std::move(copy.error()));
        }
        if (*copy) {
            former.push_back(std::move(**copy));
        }
    }
    if (Status removed = remove_copies(std::move(former)); !removed) {
        return removed;
    }
    for (const std::string& source : sources) {
        own_.made.erase(source);
    }
    return {};
}

Status DirectoryRename::copy_what_changed() {
    const std::vector<MovedName> announced = names();
    if (Status listed = list_source_at_rest(); !listed) {
        return listed;
    }
    if (source_was_implied_ && sources_.empty() && !announced.empty()) {
        return failure(EBUSY, move_.source + ": another mount has just moved or removed this directory");
    }
    std::vector<ObjectInfo> changed;
    std::set<std::string> present;
    for (const ObjectInfo& source : sources_) {
        present.insert(source.key);
        const auto copied = own_.made.find(source.key);
        if (copied == own_.made.end() || copied->second.source_etag != source.etag) {
            changed.push_back(source);
        }
    }
    std::vector<std::string> gone_sources;
    for (const auto& [source, copied] : own_.made) {
        if (!present.contains(source)) {
            gone_sources.push_back(source);
        }
    }
    // Done before their names leave the list: by these a repair knows what may be a copy.
    if (Status gone = remove_former_copies(gone_sources); !gone) {
        return gone;
    }
    if (const std::vector<MovedName> all = with_former(announced, names()); all != announced) {
        Status written =
            wait_for<void>([&](auto done) { write_names(store_, names_key(record_.rename()), all, done); });
        if (!written) {
            return written;
        }
        announced_ = all;
    }
    std::vector<std::string> copied_before;
    for (const ObjectInfo& source : changed) {
        if (own_.made.contains(source.key)) {
            copied_before.push_back(source.key);
        }
    }
    if (Status gone = remove_former_copies(copied_before); !gone) {
        return gone;
    }
    if (Status copied = copy_tree(store_, changed, record_.rename(), while_held(), own_, move_.last_names); !copied) {
        return copied;
    }
    for (const ObjectInfo& source : changed) {
        const auto copied = own_.made.find(source.key);
        if (copied == own_.made.end() || copied->second.source_etag != source.etag) {
            return failure(EBUSY, source.key + " is changed while its directory is renamed");
        }
    }
    return {};
}

}  // namespace ckptfs::fs
