// SPDX-License-Identifier: Apache-2.0
// What this node saw of the bucket last, object by object: names, what describes them, and the bytes of small objects,
// of which DiskCache keeps nothing. It is what --cache-only shows.
//
// One database in the cache directory, for all mounts that name it, by endpoint and bucket. Each row says of itself
// whether it is damaged: of one that is, only the name is shown.
//
// Threads: used by one at a time; all functions wait for the disk. Other processes may use it at the same time.
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
#include "disk/sqlite.h"

namespace ckptfs {

// In bytes, as it is stored: what comes with the first request of an open, and so is not kept.
inline constexpr std::uint64_t kLargestRecorded = kSmallestKept;

// An object as a request has shown it.
struct SeenObject {
    ObjectInfo info;
    // All of ObjectInfo is known, not only what a listing tells.
    bool is_described = true;
    // All of its bytes, as they are stored.
    std::optional<std::string> body{};
};

class ObjectRecord {
public:
    // Of all buckets.
    static std::string path_in(const std::string& directory) { return directory + "/objects.sqlite"; }

    // All that was recorded, of all buckets: it begins anew.
    static Status remove(const std::string& directory);
    // To record. `store`: endpoint and bucket. One that is damaged begins anew.
    static Result<std::unique_ptr<ObjectRecord>> open(const std::string& directory, const std::string& store);
    // Only to look at it, and as it is.
    static Result<std::unique_ptr<ObjectRecord>> open_to_read(const std::string& directory, const std::string& store);
    // It is still what path_in() leads to: it may have begun anew.
    [[nodiscard]] bool is_current() const;
    // What is wrong with it as a whole; empty where nothing is. Reads all of it.
    [[nodiscard]] Result<std::string> find_damage() const;

    // All of it is there afterwards, or nothing.
    Status begin() { return database_.run("BEGIN IMMEDIATE"); }
    Status commit() { return database_.run("COMMIT"); }
    void give_up() { static_cast<void>(database_.run("ROLLBACK")); }

    // Bytes, and a description, that are known of the same version already stay.
    Status there(const SeenObject& seen, WallTime now);
    Status gone(const std::string& key);
    // What was recorded of its source is what the copy is, but for its ETag, time, and what `description` says.
    Status copied(const CopyRequest& copy, const PutResponse& written, WallTime now);
    // A page is what there is between its first and its last name, but for what is known better: names to be left
    // alone.
    Status listed(const ListRequest& request, const ListResponse& page, const std::set<std::string>& left_alone,
                  WallTime now);
    // Of the bucket.
    Status forget_all();
    // What was seen longest ago goes until the rest takes `limit` bytes at most.
    Status trim(std::uint64_t limit);

    // Without its bytes.
    [[nodiscard]] Result<std::optional<SeenObject>> find(const std::string& key);
    [[nodiscard]] Result<std::optional<std::string>> body(const std::string& key, const std::string& etag);
    Status forget_body(const std::string& key);
    // As ObjectStore::list(), with what describes the objects.
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
        // Of one that is damaged: its key, and what is no more than likely. It is not described.
        SeenObject seen;
        bool is_damaged = false;
        std::optional<std::int64_t> body_hash;
        // In hours.
        std::int64_t seen_at = 0;
    };

    ObjectRecord(sqlite::Database database, Statements statements, std::string path, std::string store)
        : database_(std::move(database)),
          statements_(std::move(statements)),
          path_(std::move(path)),
          store_(std::move(store)),
          file_(file_at(path_)) {}

    // Which file the path leads to.
    using FileId = std::pair<std::uint64_t, std::uint64_t>;
    static FileId file_at(const std::string& path);
    static Result<std::unique_ptr<ObjectRecord>> open_now(const std::string& path, const std::string& store,
                                                          sqlite::Database::Access access);
    static Result<Statements> prepare(const sqlite::Database& database);
    [[nodiscard]] std::string name(std::string_view key) const { return store_ + '\n' + std::string(key); }
    // Null where the name is damaged.
    [[nodiscard]] std::optional<std::string> key_of(std::string_view name) const;
    static std::int64_t hours(WallTime time);
    [[nodiscard]] Result<std::optional<Row>> row(const std::string& key);
    struct Rows {
        std::vector<Row> rows;
        // Where the next ones begin; empty behind the last one.
        std::string next;
    };
    // What tells versions apart, and when one was seen.
    struct Version {
        std::string etag;
        std::uint64_t size = 0;
        std::int64_t seen = 0;

        [[nodiscard]] bool is_of(const ObjectInfo& info) const { return etag == info.etag && size == info.size; }
    };
    struct NamedVersion {
        std::string name;
        // Of a name that the listing shows; null for a common prefix.
        std::optional<Version> version;
    };
    // Pages that were recorded, by what was asked for: when, and what they were.
    struct RecordedPage {
        std::int64_t changes = 0;
        std::uint64_t hash = 0;
    };
    // Those below the prefix, from a key on: some of them.
    [[nodiscard]] Result<Rows> rows_from(const std::string& key, const std::string& prefix, int most);
    [[nodiscard]] Result<Row> row_of(const sqlite::Statement& found) const;
    [[nodiscard]] Failure damaged_name() const;
    // Of the range of keys that the page covers.
    [[nodiscard]] Result<std::vector<NamedVersion>> recorded_of(const ListRequest& request, const ListResponse& page);
    Status list_now(const ListRequest& request, const ListResponse& page, const std::set<std::string>& left_alone,
                    WallTime now);
    Status touch(const std::string& key, std::int64_t seen, WallTime now);
    // Another number once names or versions have changed, by whatever process.
    [[nodiscard]] Result<std::int64_t> changes();
    [[nodiscard]] std::int64_t hash_of_body(const SeenObject& seen) const;
    Status put(const SeenObject& seen, WallTime now);
    Status remove_below(const std::string& prefix);

    sqlite::Database database_;
    Statements statements_;
    const std::string path_;
    const std::string store_;
    const FileId file_;
    // By this process.
    std::int64_t changes_ = 0;
    std::int64_t data_version_ = 0;
    std::unordered_map<std::string, RecordedPage> pages_;
};

}  // namespace ckptfs
