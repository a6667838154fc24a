// SPDX-License-Identifier: Apache-2.0
// The journals of earlier mounts of the same source at the same place: those of mounts that have ended are taken, and
// what they had begun is ended at the store.
//
// Threads: end_leftovers() returns at once; the store answers on its own.
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

// Of a mount that has ended without ending these. The lock is held until it goes.
struct Leftovers {
    JournalContents begun;
    std::string path;
    FileDescriptor lock;
};
// None where another has the lock.
[[nodiscard]] std::vector<Leftovers> take_leftovers(const std::string& directory, const std::string& place);
// Whether a mount of this place lives whose journal is not `own`: at its end it may leave something, too.
[[nodiscard]] bool is_another_in_use(const std::string& directory, const std::string& place, const std::string& own);
// Calls back with success when what is left of an unfinished file may be removed. `upload`: empty for an object.
using BeforeRemoval = std::function<void(const std::string& key, const std::string& upload, StoreDone<void> done)>;
// Begins to end the uploads and to remove the objects; says in the log how many there were. What cannot be ended is
// left for the next time. `journal`: has noted what else was in them.
void end_leftovers(std::vector<Leftovers> leftovers, ObjectStore& store, MountJournal& journal,
                   const BeforeRemoval& before);

// What a mount of a place begins with.
struct MountJournals {
    // In memory where there can be no file; the log says why.
    std::unique_ptr<MountJournal> own;
    std::vector<Leftovers> leftovers;
    // At its end it may leave something, too.
    bool another_lives = false;
};
// `directory`: empty for a user without a home.
[[nodiscard]] MountJournals open_journals(const std::optional<std::string>& directory, const std::string& place,
                                          JournalKept kept = JournalKept::kByTheKernel);

}  // namespace ckptfs
