// SPDX-License-Identifier: Apache-2.0
// The journals of earlier mounts of the same source at the same place: takes those of mounts that have ended, and ends
// at the store what they had begun.
//
// Threads: end_leftovers() returns at once; the store calls back later.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "ckptfs/object_store.h"
#include "journal/journal_text.h"
#include "journal/mount_journal.h"

namespace ckptfs {

// The journal of a mount that has ended without ending what is in it. The lock is held until the file is removed.
struct Leftovers {
    JournalContents begun;
    std::string path;
    FileDescriptor lock;
};
// Leaves out journals that another process has locked.
[[nodiscard]] std::vector<Leftovers> take_leftovers(const std::string& directory, const std::string& place);
// Whether a mount of this place, whose journal is not `own`, is alive: it may leave something at its end, too.
[[nodiscard]] bool is_another_in_use(const std::string& directory, const std::string& place, const std::string& own);
// Calls back with success when what is left of an unfinished file may be removed. `upload`: empty for an object.
using BeforeRemoval = std::function<void(const std::string& key, const std::string& upload, StoreDone<void> done)>;
// Begins to abort the uploads and to remove the objects; logs how many there were. What cannot be ended is left for the
// next mount. `journal` has noted what else was in the leftovers.
void end_leftovers(std::vector<Leftovers> leftovers, ObjectStore& store, MountJournal& journal,
                   const BeforeRemoval& before);

// What a mount of a place begins with.
struct MountJournals {
    // In memory if there can be no file; the log says why.
    std::unique_ptr<MountJournal> own;
    std::vector<Leftovers> leftovers;
    // Another mount of the place is alive, and may leave something at its end, too.
    bool another_lives = false;
};
// `directory`: empty for a user without a home.
[[nodiscard]] MountJournals open_journals(const std::optional<std::string>& directory, const std::string& place,
                                          JournalKept kept = JournalKept::kByTheKernel);

}  // namespace ckptfs
