// SPDX-License-Identifier: Apache-2.0
// Directories: marker objects made by mkdir, or implied by any key below; listings page by page.
//
// A listing shows what the bucket holds and, besides, the files this mount is still writing. It keeps one page of
// entries in memory, however many keys there are.
//
// Threads: all functions may be called from any thread; those that wait for the store do so on the blocking executor.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "fs/moves/recorded_renames.h"
#include "fs/names/lookups.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class DirectoryListing;

class Directories {
public:
    Directories(SharedState& state, Lookups& lookups, RenameRepairs& repairs, UnlinkBatches& batches);
    ~Directories();

    void mkdir(NodeId parent, std::string name, Reply<Entry> reply);
    // Called with a writer whose file is removed while it is open; may block.
    using Orphan = std::function<void(const std::shared_ptr<FileWriter>&)>;
    // Called once, when the removal has its place in KeyOrder, where later changes of the name wait for it, or needs
    // none.
    using PlaceTaken = std::function<void()>;
    void rmdir(NodeId parent, std::string name, Orphan orphan, const PlaceTaken& taken, Reply<void> reply);
    void unlink(NodeId parent, std::string name, Orphan orphan, const PlaceTaken& taken, Reply<void> reply);
    // The failure of removals from the directory, or from one below it, that were acknowledged before they were made;
    // reported once. The key ends with '/'.
    [[nodiscard]] std::optional<Error> take_failure_below(const std::string& directory_key) {
        return batches_.take_failure_below(directory_key);
    }

    void open(NodeId node, Reply<HandleId> reply);
    void read(HandleId handle, std::uint64_t offset, std::size_t max_entries, bool with_attributes,
              Reply<std::vector<DirectoryEntry>> reply);
    void release(HandleId handle);

    // Writes the directory's marker if it would vanish with its last key. `soon`: writes it without looking whether
    // that is so, because name after name is removed. Blocks.
    void keep_when_empty(const NodePtr& directory, bool soon = false);

private:
    struct Unlink {
        NodePtr parent;
        std::string name;
        KeyOrder::Place place = 0;
        // NodeTable::last_removal() when the removal was asked for.
        std::uint64_t last_removal = 0;
        Orphan orphan;
        Reply<void> reply;
    };

    Result<Entry> mkdir_now(NodeId parent_id, const std::string& name);
    Status rmdir_now(NodeId parent_id, const std::string& name, const Orphan& orphan);
    // Notes that the directory's name leads nowhere any more. Returns the writers of overtaken versions below it, which
    // are removed as well.
    std::vector<std::shared_ptr<FileWriter>> note_removed(const NodePtr& parent, const std::string& name);
    // True if the removal is acknowledged, or will be.
    bool unlink_in_batch(const NodePtr& parent, const std::string& name, const Orphan& orphan, const PlaceTaken& taken,
                         const Reply<void>& reply);
    void unlink_alone(const NodePtr& parent, std::string name, Orphan orphan, const PlaceTaken& taken,
                      Reply<void> reply);
    // Removes the name after the removals and renames of it whose callers were killed.
    void unlink_in_turn(const NodePtr& parent, std::string name, Orphan orphan, const PlaceTaken& taken,
                        Reply<void> reply);
    [[nodiscard]] bool is_gone(const Unlink& unlink);
    // Notes that the name leads nowhere any more; returns the file's writers.
    std::vector<std::shared_ptr<FileWriter>> note_unlinked(const NodePtr& parent, const std::string& name);
    Status unlink_now(const Unlink& unlink);
    void end_removal(const Unlink& unlink, const Status& status);
    void end_unlink(const Unlink& unlink, const Status& status);
    Status put_marker(const std::string& key, std::optional<WallTime> made = std::nullopt);
    // Whether a rename that is not finished has a marker there.
    bool is_hidden(const std::string& key);

    SharedState& state_;
    Lookups& lookups_;
    UnlinkBatches& batches_;
    RenameRecords records_;

    Mutex mutex_;
    HandleId next_handle_ GUARDED_BY(mutex_) = 1;
    std::unordered_map<HandleId, std::shared_ptr<DirectoryListing>> listings_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
