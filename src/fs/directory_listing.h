// SPDX-License-Identifier: Apache-2.0
// One open directory: where its listing stands.
//
// Offsets count entries: 0 is ".", 1 is "..", then the keys in the bucket's order, last what only this
// mount has: files it is still writing, sockets and FIFOs. Going back beyond the page in memory starts the listing
// anew. Threads: one call at a time (guarded inside); blocks on the store.
#pragma once

#include <deque>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "fs/lookups.h"
#include "fs/recorded_renames.h"
#include "fs/shared_state.h"

namespace ckptfs {

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

    void restart();
    Status next_page();
    Result<ListResponse> fetch_page(const ListRequest& request);
    // Without those that a rename hides.
    void drop_hidden(ListResponse& page, const RecordedRenames& recorded);
    // The first page shows that the directory is not there, or not shown.
    [[nodiscard]] bool is_gone(const std::string& directory_key, const ListResponse& page) const;
    void take_page(const std::string& directory_key, const ListResponse& page);
    void finish();
    // What the page's objects hold, where the list does not tell.
    void find_contents();
    // Its files, for lookups that follow.
    void note_page();
    std::vector<DirectoryEntry> entries_from(std::uint64_t offset, std::size_t max_entries, bool with_attributes);
    DirectoryEntry dot_entry(const NodeTable::Lock& lock, std::uint64_t offset) const;
    DirectoryEntry entry_of(const NodeTable::Lock& lock, const Listed& listed, bool with_attributes);

    SharedState& state_;
    Lookups& lookups_;
    RenameRecords& records_;
    const NodePtr directory_;

    Mutex mutex_;
    std::vector<Listed> page_;
    // Offset of page_.front().
    std::uint64_t page_offset_ = 2;
    bool contents_found_ = false;
    // None of the page's directories is hidden.
    bool directories_known_ = false;
    std::string token_;
    bool at_end_ = false;
    SteadyTime started_{};
    // Files this mount is writing, and its sockets and FIFOs, that no page has shown yet.
    std::set<std::string> only_here_;
};

}  // namespace ckptfs
