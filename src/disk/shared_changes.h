// SPDX-License-Identifier: Apache-2.0
// Which names the processes that share a database of objects have changed within the last minute. A reply that one of
// them asked for before the change of another is not recorded over it, whichever of the two writes first: each process
// writes what it has seen a while later.
//
// Times are those of the steady clock, which all processes of a machine share. After a restart of the machine it begins
// anew: what the table has from before is in the future then, or older than a minute, and is removed.
//
// Threads: as ObjectRecord.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "ckptfs/clock.h"
#include "ckptfs/status.h"
#include "disk/sqlite.h"

namespace ckptfs {

class SharedChanges {
public:
    // Replies that were asked for nearly as long ago count as overtaken.
    static constexpr Milliseconds kRemembered{60'000};
    // What another process notes while this one waits for the database is from after the time that this one goes by.
    static constexpr Milliseconds kWaits{10'000};

    // Creates the table where it is missing.
    static Result<SharedChanges> open(const sqlite::Database& database);

    // Forgets what is too old, or was noted before the machine was restarted.
    Status forget_before(SteadyTime now);
    // The name was changed, which ended at this time.
    Status note(std::string_view name, SteadyTime ended);
    [[nodiscard]] Result<bool> has_changed(std::string_view name, SteadyTime since);
    // Names from `first` to before `end`.
    [[nodiscard]] Result<std::set<std::string>> changed(std::string_view first, std::string_view end, SteadyTime since);

private:
    SharedChanges(sqlite::Statement note, sqlite::Statement find, sqlite::Statement list, sqlite::Statement forget)
        : note_(std::move(note)), find_(std::move(find)), list_(std::move(list)), forget_(std::move(forget)) {}

    sqlite::Statement note_;
    sqlite::Statement find_;
    sqlite::Statement list_;
    sqlite::Statement forget_;
};

}  // namespace ckptfs
