// SPDX-License-Identifier: Apache-2.0
#include "disk/shared_changes.h"

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace ckptfs {
namespace {

// `ended`: nanoseconds of the steady clock.
constexpr const char* kTable =
    "CREATE TABLE IF NOT EXISTS changes (name BLOB PRIMARY KEY, ended INTEGER NOT NULL) WITHOUT ROWID; "
    "CREATE INDEX IF NOT EXISTS changes_ended ON changes (ended)";

std::int64_t nanoseconds(SteadyTime time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

Result<SharedChanges> SharedChanges::open(const sqlite::Database& database) {
    if (Status made = database.run(kTable); !made) {
        return failure(std::move(made.error()));
    }
    std::vector<sqlite::Statement> prepared;
    for (const char* const text : {
             "INSERT INTO changes (name, ended) VALUES (?, ?) "
             "ON CONFLICT (name) DO UPDATE SET ended = max(ended, excluded.ended)",
             "SELECT 1 FROM changes WHERE name = ? AND ended > ?",
             "SELECT name FROM changes WHERE name >= ? AND name < ? AND ended > ?",
             "DELETE FROM changes WHERE ended < ? OR ended > ?",
         }) {
        Result<sqlite::Statement> statement = database.prepare(text);
        if (!statement) {
            return failure(std::move(statement.error()));
        }
        prepared.push_back(std::move(*statement));
    }
    return SharedChanges(std::move(prepared[0]), std::move(prepared[1]), std::move(prepared[2]),
                         std::move(prepared[3]));
}

Status SharedChanges::forget_before(SteadyTime now) {
    return forget_.bind(1, nanoseconds(now - kRemembered)).bind(2, nanoseconds(now + kWaits)).run();
}

Status SharedChanges::note(std::string_view name, SteadyTime ended) {
    return note_.bind(1, name).bind(2, nanoseconds(ended)).run();
}

Result<bool> SharedChanges::has_changed(std::string_view name, SteadyTime since) {
    Result<bool> found = find_.bind(1, name).bind(2, nanoseconds(since)).next();
    if (found && *found) {
        find_.end();
    }
    return found;
}

Result<std::set<std::string>> SharedChanges::changed(std::string_view first, std::string_view end, SteadyTime since) {
    std::set<std::string> names;
    list_.bind(1, first).bind(2, end).bind(3, nanoseconds(since));
    for (;;) {
        const Result<bool> found = list_.next();
        if (!found) {
            return failure(found.error());
        }
        if (!*found) {
            return names;
        }
        names.emplace(list_.bytes(0));
    }
}

}  // namespace ckptfs
