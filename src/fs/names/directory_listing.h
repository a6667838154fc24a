// SPDX-License-Identifier: Apache-2.0
// One open directory, and the position of its listing.
//
// Offsets count entries: 0 is ".", 1 is "..", then the keys in the bucket's order, last what only this mount has: files
// it is still writing, sockets and FIFOs. Going back beyond the page in memory starts the listing again.
//
// If another mount renames the directory meanwhile, the listing would seem to end early. So each page except the first
// costs one more request, which checks the directory's marker.
//
// Threads: one call at a time (guarded inside); blocks on the store.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "fs/moves/recorded_renames.h"
#include "fs/names/lookups.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class DirectoryListing {
public:
    DirectoryListing(SharedState& state, Lookups& lookups, RenameRecords& records, NodePtr directory);
    ~DirectoryListing();

    [[nodiscard]] NodeId directory() const { return directory_->id; }
    Result<std::vector<DirectoryEntry>> read(std::uint64_t offset, std::size_t max_entries, bool with_attributes);

private:
    struct Listed {
        std::string name;
        bool is_directory = false;
        ObjectVersion version;
        std::string key;
        bool content_is_known = true;
    };

    void restart() REQUIRES(mutex_);
    Status next_page() REQUIRES(mutex_);
    [[nodiscard]] std::string key_now() const;
    Result<ListResponse> fetch_page(const ListRequest& request) REQUIRES(mutex_);
    // ESTALE if the page may lack names, or may be another directory's.
    Status check_is_there(const ListRequest& request, const ListResponse& page) REQUIRES(mutex_);
    // Whether this is another directory than on the first page: that one was removed or renamed, and perhaps made
    // again.
    Result<bool> is_another(const std::string& directory_key) REQUIRES(mutex_);
    Result<bool> is_made_anew(const ObjectInfo& marker) REQUIRES(mutex_);
    // Drops the directories that a rename hides.
    Status drop_hidden(ListResponse& page, const RecordedRenames& recorded);
    // The same; `suspected`: path_hash() of those that may be hidden.
    Status drop_hidden(ListResponse& page, const std::unordered_set<std::uint64_t>& suspected);
    [[nodiscard]] static bool is_late(const ListResponse& page, SteadyTime listed, const RecordedRenames& recorded);
    // Whether the first keys of the page show that the directory is not there, or not shown.
    [[nodiscard]] bool is_gone(const std::string& directory_key, const ListResponse& page) const;
    [[nodiscard]] bool is_moving(const NodeTable::Lock& lock) const REQUIRES(node_table);
    void take_page(const std::string& directory_key, const ListResponse& page) REQUIRES(mutex_);
    void finish() REQUIRES(mutex_);
    // Finds out what the page's objects hold, where the list does not show it.
    void find_contents() REQUIRES(mutex_);
    // Remembers the files of the page, for lookups that follow.
    void note_page() REQUIRES(mutex_);
    std::vector<DirectoryEntry> entries_from(std::uint64_t offset, std::size_t max_entries, bool with_attributes)
        REQUIRES(mutex_);
    DirectoryEntry dot_entry(const NodeTable::Lock& lock, std::uint64_t offset) const REQUIRES(node_table);
    // Whether this mount did or learned something of `present` since the store was asked: that is newer than the reply.
    [[nodiscard]] static bool is_newer(const NodeTable::Lock& lock, const NodePtr& present, SteadyTime asked)
        REQUIRES(node_table);
    [[nodiscard]] bool is_overtaken(const NodeTable::Lock& lock, const Listed& listed) const
        REQUIRES(mutex_, node_table);
    // Whether what the page says of a name without a node may have been overtaken.
    [[nodiscard]] bool is_outdated(const NodeTable::Lock& lock, const Listed& listed) const
        REQUIRES(mutex_, node_table);
    DirectoryEntry entry_of(const NodeTable::Lock& lock, const Listed& listed, bool with_attributes)
        REQUIRES(mutex_, node_table);

    SharedState& state_;
    Lookups& lookups_;
    RenameRecords& records_;
    const NodePtr directory_;

    Mutex mutex_;
    std::vector<Listed> page_ GUARDED_BY(mutex_);
    // Offset of page_.front().
    std::uint64_t page_offset_ GUARDED_BY(mutex_) = 2;
    bool contents_found_ GUARDED_BY(mutex_) = false;
    // It is certain that none of the page's directories is hidden.
    bool directories_known_ GUARDED_BY(mutex_) = false;
    std::string token_ GUARDED_BY(mutex_);
    // Key and marker of the directory on the first page.
    std::string key_ GUARDED_BY(mutex_);
    std::optional<ObjectInfo> marker_ GUARDED_BY(mutex_);
    bool at_end_ GUARDED_BY(mutex_) = false;
    SteadyTime started_ GUARDED_BY(mutex_){};
    // When the page was requested, and NodeTable::last_removal() before that.
    SteadyTime page_asked_ GUARDED_BY(mutex_){};
    std::uint64_t page_removal_ GUARDED_BY(mutex_) = 0;
    // Files this mount is writing, and its sockets and FIFOs, that no page has shown yet.
    std::set<std::string> only_here_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
