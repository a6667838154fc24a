// SPDX-License-Identifier: Apache-2.0
// What the end of a mount waits for: files that are being written, changes of names, and the removal of what a failed
// file left in the store; and how it gives up what it cannot wait for.
//
// Threads: all functions may be called from any thread; the mutex is a leaf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

// The error of a file that was open when the connection to the kernel ended.
[[nodiscard]] Error cut_off_error(const FileWriter& writer);

class Draining {
public:
    // Changes that the end waits for, as for a writer: a rename copies for as long as its objects are large, a removal
    // may wait for a rename or for a batch, and their callers may be gone.
    enum class NameChange : std::uint8_t { kRename, kRemoval };

    explicit Draining(SharedState& state) : state_(state) {}

    void change_begins(NameChange change, const std::string& name);
    void change_ends(NameChange change, const std::string& name);
    // Around the removal of what a failed or killed writer's file left in the store.
    void abort_begins();
    void abort_ends();
    // Called before the node forgets the writer: from then on nothing else tells that its upload is still being ended.
    void after_abort(const std::shared_ptr<FileWriter>& writer);

    // Replies when no file is dirty, and none of the above is under way. From now on the mount takes no new files.
    void begin(Reply<void> reply);
    // To be called whenever that may have come true.
    void answer();
    // Gives up all files; FileSystem::abandon().
    std::vector<std::string> abandon(Reply<void> ended);

    // Files that were given up because the connection to the kernel ended before they were closed.
    void note_cut_off(const std::string& key);
    [[nodiscard]] std::vector<std::string> cut_off() const;
    // Number of renames and removals under way.
    [[nodiscard]] std::size_t changes() const;
    // Names with a rename under way.
    [[nodiscard]] std::vector<std::string> renames() const;

private:
    // Ends the uploads of files with nothing to save that the kernel will not release any more.
    void end_unreleased(const std::vector<std::shared_ptr<FileWriter>>& writers);

    SharedState& state_;

    mutable Mutex mutex_;
    std::multiset<std::pair<NameChange, std::string>> changes_ GUARDED_BY(mutex_);
    int aborts_ GUARDED_BY(mutex_) = 0;
    std::set<std::shared_ptr<FileWriter>> unreleased_ GUARDED_BY(mutex_);
    std::vector<std::string> cut_off_ GUARDED_BY(mutex_);
    std::vector<Reply<void>> waiting_for_drain_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
