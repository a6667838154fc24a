// SPDX-License-Identifier: Apache-2.0
// What this node last saw of the bucket, object by object: names, what describes them, and the bytes of small objects,
// of which DiskCache keeps nothing. --cache-only shows it.
//
// One database in the cache directory, for all mounts that name it, by endpoint and bucket. Each row has hashes that
// show damage: of a damaged row only the name is shown.
//
// Threads: used by one thread at a time; all functions wait for the disk. Other processes may use the database at the
// same time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ckptfs/clock.h"
#include "ckptfs/file_cache.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "disk/shared_changes.h"
#include "disk/sqlite.h"

namespace ckptfs {

// Stored size in bytes: the first request of an open brings so much, so that DiskCache does not keep it.
inline constexpr std::uint64_t kLargestRecorded = kSmallestKept;

// An object as a request has shown it.
struct SeenObject {
    ObjectInfo info;
    // All of ObjectInfo is known, not only what a listing shows.
    bool is_described = true;
    // All bytes, as they are stored; empty if they are not known.
    std::optional<std::string> body{};
};

class ObjectRecord {
public:
    // Path of the database, which is for all buckets.
    static std::string path_in(const std::string& directory) { return directory + "/objects.sqlite"; }

    // Removes all that was recorded, of all buckets.
    static Status remove(const std::string& directory);
    // Opens the database to record. `store`: endpoint and bucket. A damaged database is replaced by an empty one.
    static Result<std::unique_ptr<ObjectRecord>> open(const std::string& directory, const std::string& store);
    // Opens the database to read it as it is.
    static Result<std::unique_ptr<ObjectRecord>> open_to_read(const std::string& directory, const std::string& store);
    // Whether path_in() still leads to this database, which may have been replaced.
    [[nodiscard]] bool is_current() const;
    // What is wrong with the database as a whole; empty if nothing is. Reads all of it.
    [[nodiscard]] Result<std::string> find_damage() const;

    // A transaction: its changes are there after commit(), or none of them.
    Status begin() { return database_.run("BEGIN IMMEDIATE"); }
    Status commit() { return database_.run("COMMIT"); }
    // In a transaction, before what was seen: forgets changes of long ago.
    Status forget_changes_before(SteadyTime now) { return shared_->forget_before(now); }
    // This process, or another, has changed the key: replies from before say nothing any more.
    Status note_change(const std::string& key, SteadyTime ended) { return shared_->note(name(key), ended); }
    [[nodiscard]] Result<bool> has_changed(const std::string& key, SteadyTime since) {
        return shared_->has_changed(name(key), since);
    }
    // Keys below the prefix that were changed.
    [[nodiscard]] Result<std::set<std::string>> changed_below(const std::string& prefix, SteadyTime since);
    void give_up() { static_cast<void>(database_.run("ROLLBACK")); }

    // Bytes and a description that are known of the same version already stay.
    Status there(const SeenObject& seen, WallTime now);
    Status gone(const std::string& key);
    // Records a copy as its source was recorded, except for ETag, time, and what `description` says.
    Status copied(const CopyRequest& copy, const PutResponse& written, WallTime now);
    // Between the first and the last name of a page there is only what it shows. `left_alone`: names that stay as they
    // are, because something newer is known.
    Status listed(const ListRequest& request, const ListResponse& page, const std::set<std::string>& left_alone,
                  WallTime now);
    // Removes all that was recorded of this bucket.
    Status forget_all();
    // Above `limit` bytes, removes what was seen longest ago until the rest is estimated to take less.
    Status trim(std::uint64_t limit);

    // The object without its bytes.
    [[nodiscard]] Result<std::optional<SeenObject>> find(const std::string& key);
    [[nodiscard]] Result<std::optional<std::string>> body(const std::string& key, const std::string& etag);
    Status forget_body(const std::string& key);
    // As ObjectStore::list(), with the descriptions of the objects.
    [[nodiscard]] Result<ListResponse> list(const ListRequest& request);

private:
    struct Statements {
        sqlite::Statement data_version;
        sqlite::Statement find;
        sqlite::Statement body;
        sqlite::Statement put;
        sqlite::Statement touch;
        sqlite::Statement remove;
        sqlite::Statement remove_range;
        sqlite::Statement from;
        sqlite::Statement versions_from;
        sqlite::Statement forget_body;
        sqlite::Statement oldest;
    };
    struct Row {
        std::string key;
        // Of a damaged row: the key, and an ETag and a size that are only likely. It is not described.
        SeenObject seen;
        bool is_damaged = false;
        std::optional<std::int64_t> body_hash;
        // When the object was last seen, in hours.
        std::int64_t seen_at = 0;
    };

    ObjectRecord(sqlite::Database database, Statements statements, std::string path, std::string store)
        : database_(std::move(database)),
          statements_(std::move(statements)),
          path_(std::move(path)),
          store_(std::move(store)),
          file_(file_at(path_)) {}

    // Identifies the file at a path.
    using FileId = std::pair<std::uint64_t, std::uint64_t>;
    static FileId file_at(const std::string& path);
    static Result<std::unique_ptr<ObjectRecord>> open_now(const std::string& path, const std::string& store,
                                                          sqlite::Database::Access access);
    static Result<Statements> prepare(const sqlite::Database& database);
    [[nodiscard]] std::string name(std::string_view key) const { return store_ + '\n' + std::string(key); }
    // Empty if the name is damaged.
    [[nodiscard]] std::optional<std::string> key_of(std::string_view name) const;
    static std::int64_t hours(WallTime time);
    [[nodiscard]] Result<std::optional<Row>> row(const std::string& key);
    struct Rows {
        std::vector<Row> rows;
        // Key at which the next rows begin; empty after the last row.
        std::string next;
    };
    // What distinguishes versions, and when one was seen.
    struct Version {
        std::string etag;
        std::uint64_t size = 0;
        std::int64_t seen = 0;

        [[nodiscard]] bool is_of(const ObjectInfo& info) const { return etag == info.etag && size == info.size; }
    };
    struct NamedVersion {
        std::string name;
        // Empty if the name is a common prefix.
        std::optional<Version> version;
    };
    // A page that was recorded: changes() then, and a hash of the page.
    struct RecordedPage {
        std::int64_t changes = 0;
        std::uint64_t hash = 0;
    };
    // Rows below the prefix, from a key on, `most` of them at most.
    [[nodiscard]] Result<Rows> rows_from(const std::string& key, const std::string& prefix, int most);
    [[nodiscard]] Result<Row> row_of(const sqlite::Statement& found) const;
    [[nodiscard]] Failure damaged_name() const;
    // What is recorded of the range of keys that the page covers.
    [[nodiscard]] Result<std::vector<NamedVersion>> recorded_of(const ListRequest& request, const ListResponse& page);
    Status list_now(const ListRequest& request, const ListResponse& page, const std::set<std::string>& left_alone,
                    WallTime now);
    Status touch(const std::string& key, std::int64_t seen, WallTime now);
    // Returns another number once any process has changed names or versions.
    [[nodiscard]] Result<std::int64_t> changes();
    [[nodiscard]] std::int64_t hash_of_body(const SeenObject& seen) const;
    Status put(const SeenObject& seen, WallTime now);
    Status remove_below(const std::string& prefix);

    sqlite::Database database_;
    Statements statements_;
    // Empty where the database is only read.
    std::optional<SharedChanges> shared_;
    const std::string path_;
    const std::string store_;
    const FileId file_;
    // Counts changes by this process, and those by others that data_version_ has shown.
    std::int64_t changes_ = 0;
    std::int64_t data_version_ = 0;
    // By what was asked for.
    std::unordered_map<std::string, RecordedPage> pages_;
};

}  // namespace ckptfs
