// SPDX-License-Identifier: Apache-2.0
// rename(2) of a directory as a commit: what other mounts see is the whole source or the whole destination.
//
//   1. the record of the rename, which says where to look; then what is open below the source is committed
//   2. the destination's marker, pending: hidden from now on, if it is empty; and the names that move
//   3. all copies
//   4. the source's marker, moved: hidden from now on; what was changed in it meanwhile is copied, too;
//   what has failed in it holds a commit marker in it back, as at the beginning
//   5. the record, committed: the rename has taken effect, whatever happens; then the records of what failed below the
//   source, for the destination; then the destination's marker, empty: shown
//   6. the source is deleted, its marker last of all, then the record
//
// Up to 5 a failure leads back: the source is shown and the copies are deleted. Afterwards it leads forward. When this
// process ends in between, the record grows old, and a mount that meets it does the same (rename_repairs.h).
//
// It costs eleven round trips, one more for every 64 copies, four for every 8 that are large, and one for every 1,000
// names listed or 4,000 deleted.
//
// Threads: blocks; for the blocking executor.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "fs/rename_record.h"
#include "fs/rename_recovery.h"
#include "fs/tree_copy.h"

namespace ckptfs::fs {

// Between a record and the markers that follow: a reader that lists the records and the names within less time sees the
// record of every marker in that list.
inline constexpr Milliseconds kRecordLead{100};

struct DirectoryMove {
    // Of the mount.
    std::string prefix;
    // End in '/'.
    std::string source;
    std::string destination;
    // ETag of its marker, where the destination is an empty directory.
    std::string replaced_marker;
};

// What the rename needs from its caller.
struct DirectoryRenameSteps {
    // Publishes what is open below the source.
    std::function<Status()> prepare;
    // Whether this may get another name.
    std::function<Status(const std::vector<ObjectInfo>& sources)> allow;
    // The names lead to the copies from now on; their sources are deleted after it returns.
    std::function<void(const Copies&)> committed;
    // Whether the store honours conditional deletes; may wait for its answers.
    std::function<DeletePins()> find_pins = [] { return DeletePins::kUnknown; };
    // The source is hidden: notes what has failed there. Whether it may get another name all the same.
    std::function<Status(const std::vector<ObjectInfo>& sources)> note_failures = [](const std::vector<ObjectInfo>&) {
        return Status();
    };
    // The rename is decided: they get their new names before other mounts see the destination. Whether there were any.
    std::function<bool()> move_failures = [] { return false; };
    // Instead where the record is lost by then: what others know to have failed is moved by the mount that takes over.
    std::function<void()> leave_failures = [] {};
};

class DirectoryRename {
public:
    DirectoryRename(ObjectStore& store, const Clock& clock, Milliseconds repair_after, DirectoryMove move);

    // On failure the source is as it was, or a repair makes it so.
    Status run(const DirectoryRenameSteps& steps);

private:
    // Up to the decision.
    Status fill_destination(const DirectoryRenameSteps& steps);
    Status begin(const DirectoryRenameSteps& steps);
    // And when the two directories were made.
    Status look_at_source();
    Status list_source();
    // Another rename may have hidden the source since the caller looked it up.
    Status check_source_marker(const ObjectInfo& marker);
    Status hide_destination();
    // Else it is shown again.
    Status check_still_empty();
    Status show_as_before();
    Status copy();
    Status hide_source();
    Status copy_what_changed();
    Status list_source_at_rest();
    Status remove_copies(std::vector<RemoveRequest> copies);
    Result<std::optional<RemoveRequest>> outdated_copy(const std::string& source, const Copied& copied);
    Status remove_former_copies(const std::vector<std::string>& sources);
    // False where another mount does so, and all that follows.
    Result<bool> show_destination(bool with_failures);
    // The same where the record is lost: whether another mount has done so is seen by the marker.
    Result<bool> look_at_destination();
    [[nodiscard]] Failure left_to_others(Error error) const;
    Result<std::string> write_shown_marker(bool with_failures);
    // False where another mount may have taken over before.
    bool go_back();
    // Others may be at it as well, or have been.
    Status go_back_when_lost();
    void remove_source();
    // Those that are the versions that were copied.
    Result<std::vector<RemoveRequest>> copied_sources(DeletePins pins);
    [[nodiscard]] MayGoOn while_held() const {
        return [this] { return !record_.lost(); };
    }
    [[nodiscard]] std::vector<MovedName> names() const;
    [[nodiscard]] DirectoryMarker marker(MarkerState state) const;

    ObjectStore& store_;
    const Clock& clock_;
    const DirectoryMove move_;
    RenameRecord record_;
    std::function<DeletePins()> find_pins_;

    // Without the source's marker. A page is as the bucket was at one time.
    std::vector<ObjectInfo> sources_;
    int pages_ = 0;
    // As they were written last, for who undoes the rename.
    std::vector<MovedName> announced_;
    // ETags; empty where there is none.
    std::string source_marker_;
    bool source_was_implied_ = false;
    std::string destination_marker_;
    // The epoch where there was no marker to tell.
    WallTime source_made_{};
    // Where it replaces an empty directory.
    std::optional<WallTime> destination_made_;
    OwnCopies own_{{}, true};
};

}  // namespace ckptfs::fs
