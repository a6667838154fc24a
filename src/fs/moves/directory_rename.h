// SPDX-License-Identifier: Apache-2.0
// rename(2) of a directory as a commit: what other mounts see is the whole source or the whole destination.
//
//   1. Write the record of the rename, which says where to look; then commit what is open below the source.
//   2. Write the destination's marker, pending, which hides it if it is empty; and the list of names that move.
//   3. Copy everything.
//   4. Write the source's marker, moved, which hides it; then copy what was changed there meanwhile. Failures below the
//   source hold back a commit marker there, as at the beginning.
//   5. Write the record, committed: the rename has taken effect, whatever happens. Then write the records of what
//   failed below the source, for the destination; then the destination's marker, empty, which shows it.
//   6. Delete the source, its marker last of all, then the record.
//
// A failure before step 5 leads back: the source is shown and the copies are deleted. A later one leads forward. If
// this process ends in between, the record grows old, and a mount that meets it does the same (rename_repairs.h). A
// failure where a request got no answer is undone twice, the second time once the store carries that request out no
// more: the destination stays hidden until then.
//
// A rename costs eleven round trips, one more for every 64 copies, four for every 8 that are large, and one for every
// 1,000 names listed or 4,000 deleted.
//
// Threads: blocks; for the blocking executor.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "fs/moves/rename_record.h"
#include "fs/moves/rename_recovery.h"
#include "fs/objects/tree_copy.h"

namespace ckptfs::fs {

// The time between writing a record and the markers that follow: a reader that lists the records and the names within
// less time sees the record of every marker in that list.
inline constexpr Milliseconds kRecordLead{100};

struct DirectoryMove {
    // Key prefix of the mount.
    std::string prefix;
    // Keys that end in '/'.
    std::string source;
    std::string destination;
    // ETag of the destination's marker, if the destination is an empty directory; else empty.
    std::string replaced_marker;
    // Names of commit markers, which are copied when all else is.
    std::vector<std::string> last_names = {};
};

// What the rename needs from its caller.
struct DirectoryRenameSteps {
    // Publishes what is open below the source.
    std::function<Status()> prepare;
    // Whether these objects may get another name.
    std::function<Status(const std::vector<ObjectInfo>& sources)> allow;
    // Makes the names lead to the copies; the sources are deleted after it returns.
    std::function<void(const Copies&)> committed;
    // Whether the store honours conditional deletes; may block.
    std::function<DeletePins()> find_pins = [] { return DeletePins::kUnknown; };
    // Called once the source is hidden: notes what has failed there. Fails if it may not get another name because of
    // that.
    std::function<Status(const std::vector<ObjectInfo>& sources)> note_failures = [](const std::vector<ObjectInfo>&) {
        return Status();
    };
    // Called once the rename is decided: gives the failures their new names before other mounts see the destination.
    // Returns whether there were any.
    std::function<bool()> move_failures = [] { return false; };
    // Called instead of `move_failures` if the record is lost by then: the mount that takes over moves the failures
    // that others know of.
    std::function<void()> leave_failures = [] {};
    // Waits so long, while requests without an answer may still take effect.
    std::function<void(Milliseconds)> wait = [](Milliseconds) {};
};

class DirectoryRename {
public:
    DirectoryRename(ObjectStore& store, const Clock& clock, Milliseconds repair_after, DirectoryMove move);

    // After a failure before the decision the source is as it was, or a repair makes it so; after a later one a repair
    // finishes the rename.
    Status run(const DirectoryRenameSteps& steps);

private:
    // Takes all steps before the decision.
    Status fill_destination(const DirectoryRenameSteps& steps);
    Status begin(const DirectoryRenameSteps& steps);
    // Lists the source, and finds out when the two directories were made.
    Status look_at_source();
    Status list_source();
    // EBUSY if another rename has hidden the source since the caller looked it up.
    Status check_source_marker(const ObjectInfo& marker);
    Status hide_destination();
    // ENOTEMPTY if the destination is not empty, which is then shown again.
    Status check_still_empty();
    Status show_as_before();
    Status copy();
    Status hide_source();
    Status copy_what_changed();
    Status list_source_at_rest();
    Status remove_copies(std::vector<RemoveRequest> copies);
    Result<std::optional<RemoveRequest>> outdated_copy(const std::string& source, const Copied& copied);
    Status remove_former_copies(const std::vector<std::string>& sources);
    // Returns false if another mount does so, and all that follows.
    Result<bool> show_destination(bool with_failures);
    // Used instead if the record is lost: the marker shows whether another mount has shown the destination.
    Result<bool> look_at_destination();
    [[nodiscard]] Failure left_to_others(Error error) const;
    Result<PutResponse> write_shown_marker(bool with_failures);
    // What a marker was written for: a request that may come late is noted.
    Result<std::string> noted(Result<PutResponse> written);
    // Undoes the rename. Returns false if another mount may have taken it over before.
    bool go_back(const DirectoryRenameSteps& steps);
    // Undoes the rename when the record is lost: other mounts may be undoing it as well, or have done so.
    Status go_back_when_lost(const DirectoryRenameSteps& steps);
    // While the record is held.
    Status undo(const DirectoryRenameSteps& steps);
    void remove_source();
    // The sources that still are the versions that were copied.
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

    // The objects below the source, without its marker, and on how many pages they were listed. A page shows the bucket
    // at one time.
    std::vector<ObjectInfo> sources_;
    int pages_ = 0;
    // The names as they were written last, for the mount that undoes the rename.
    std::vector<MovedName> announced_;
    // ETags of the two markers; empty if there is none.
    std::string source_marker_;
    bool source_was_implied_ = false;
    std::string destination_marker_;
    bool pending_may_come_again_ = false;
    // When the source was made; the epoch if it had no marker.
    WallTime source_made_{};
    // When the destination was made, if it is an empty directory that is replaced.
    std::optional<WallTime> destination_made_;
    OwnCopies own_{{}, true};
};

}  // namespace ckptfs::fs
