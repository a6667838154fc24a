// SPDX-License-Identifier: Apache-2.0
#include "disk/object_record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "base/xxhash.h"
#include "ckptfs/log.h"
#include "disk/object_text.h"

namespace ckptfs {
namespace {

// Version of the schema below.
constexpr std::int64_t kVersion = 1;

// `name`: the store's, a line feed, which no endpoint and no bucket holds, and the key. `etag` and `size` are those of
// `text`, for comparing listings. `seen`: hours, so that reading a file again seldom writes. Each hash covers the name,
// too.
constexpr const char* kSchema =
    "CREATE TABLE IF NOT EXISTS objects ("
    "name BLOB PRIMARY KEY, seen INTEGER NOT NULL, etag BLOB NOT NULL, size INTEGER NOT NULL, "
    "text BLOB NOT NULL, text_hash INTEGER NOT NULL, body BLOB, body_hash INTEGER); PRAGMA user_version=1";

// Besides what is over the limit, one part in this many of the limit is freed, so that not each batch makes room.
constexpr std::uint64_t kSpareShare = 8;

std::int64_t hash_of(std::string_view name, std::string_view what) {
    std::string text(name);
    text.push_back('\0');
    text += what;
    return static_cast<std::int64_t>(xxh3(text));
}

// Listings may have fractions of seconds, which other replies lack; a missing time says nothing.
bool is_same_version(const ObjectInfo& one, const ObjectInfo& other) {
    using std::chrono::seconds;
    const bool are_told = one.last_modified != WallTime{} && other.last_modified != WallTime{};
    const bool same_time =
        std::chrono::floor<seconds>(one.last_modified) == std::chrono::floor<seconds>(other.last_modified);
    return one.etag == other.etag && one.size == other.size && (!one.etag.empty() || !are_told || same_time);
}

// Held while the database's files are created or removed: the removal of one database must not take files of the next.
FileDescriptor lock_files(const std::string& directory) {
    FileDescriptor lock(
        ::open((directory + "/objects.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
    if (lock) {
        static_cast<void>(::flock(lock.get(), LOCK_EX));
    }
    return lock;
}

Status remove_files(const std::string& path) {
    for (const char* const end : {"", "-wal", "-shm"}) {
        if (::unlink((path + end).c_str()) != 0 && errno != ENOENT) {
            return failure(errno, format("cannot remove {}{}: {}", escaped(path), end, std::strerror(errno)));
        }
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<ObjectRecord>> ObjectRecord::open(const std::string& directory, const std::string& store) {
    const std::string path = path_in(directory);
    const FileDescriptor lock = lock_files(directory);
    Result<std::unique_ptr<ObjectRecord>> opened = open_now(path, store, sqlite::Database::Access::kWrite);
    if (opened || !opened.error().damaged) {
        return opened;
    }
    log_warning(format("starting the record of --cache-only over: {}", opened.error().message));
    if (Status removed = remove_files(path); !removed) {
        return failure(std::move(removed.error()));
    }
    return open_now(path, store, sqlite::Database::Access::kWrite);
}

Result<std::unique_ptr<ObjectRecord>> ObjectRecord::open_to_read(const std::string& directory,
                                                                 const std::string& store) {
    return open_now(path_in(directory), store, sqlite::Database::Access::kRead);
}

Status ObjectRecord::remove(const std::string& directory) {
    const FileDescriptor lock = lock_files(directory);
    return remove_files(path_in(directory));
}

ObjectRecord::FileId ObjectRecord::file_at(const std::string& path) {
    struct stat file {};
    return ::stat(path.c_str(), &file) == 0 ? FileId(file.st_dev, file.st_ino) : FileId();
}

bool ObjectRecord::is_current() const {
    return file_at(path_) == file_;
}

Result<std::string> ObjectRecord::find_damage() const {
    Result<std::string> found = database_.text("PRAGMA integrity_check(1)");
    if (found && *found == "ok") {
        found->clear();
    }
    return found;
}

Result<std::unique_ptr<ObjectRecord>> ObjectRecord::open_now(const std::string& path, const std::string& store,
                                                             sqlite::Database::Access access) {
    Result<sqlite::Database> database = sqlite::Database::open(path, access);
    if (!database) {
        return failure(std::move(database.error()));
    }
    const Result<std::int64_t> version = database->number("PRAGMA user_version");
    if (!version) {
        return failure(version.error());
    }
    if (*version == 0 && access == sqlite::Database::Access::kWrite) {
        if (Status made = database->run(kSchema); !made) {
            return failure(std::move(made.error()));
        }
    } else if (*version != kVersion) {
        return damage(format("{}: made by another version of ckptfs", escaped(path)));
    }
    Result<Statements> statements = prepare(*database);
    if (!statements) {
        return failure(std::move(statements.error()));
    }
    std::unique_ptr<ObjectRecord> opened(new ObjectRecord(std::move(*database), std::move(*statements), path, store));
    if (access == sqlite::Database::Access::kWrite) {
        Result<SharedChanges> shared = SharedChanges::open(opened->database_);
        if (!shared) {
            return failure(std::move(shared.error()));
        }
        opened->shared_ = std::move(*shared);
    }
    return opened;
}

Result<ObjectRecord::Statements> ObjectRecord::prepare(const sqlite::Database& database) {
    std::vector<sqlite::Statement> made;
    for (const char* const text : {
             "PRAGMA data_version",
             "SELECT name, text, text_hash, body_hash, seen, etag, size FROM objects WHERE name = ?",
             "SELECT body, body_hash FROM objects WHERE name = ?",
             "INSERT OR REPLACE INTO objects (name, seen, text, text_hash, body, body_hash, etag, size) "
             "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
             "UPDATE objects SET seen = ? WHERE name = ?",
             "DELETE FROM objects WHERE name = ?",
             "DELETE FROM objects WHERE name >= ? AND name < ?",
             "SELECT name, text, text_hash, body_hash, seen, etag, size FROM objects WHERE name >= ? AND name < ? "
             "ORDER BY name LIMIT ?",
             "SELECT name, etag, size, seen FROM objects WHERE name >= ? AND name < ? ORDER BY name LIMIT ?",
             "UPDATE objects SET body = NULL, body_hash = NULL WHERE name = ?",
             "DELETE FROM objects WHERE name IN (SELECT name FROM objects ORDER BY seen, rowid LIMIT ?)",
         }) {
        Result<sqlite::Statement> statement = database.prepare(text);
        if (!statement) {
            return failure(std::move(statement.error()));
        }
        made.push_back(std::move(*statement));
    }
    return Statements{std::move(made[0]), std::move(made[1]), std::move(made[2]), std::move(made[3]),
                      std::move(made[4]), std::move(made[5]), std::move(made[6]), std::move(made[7]),
                      std::move(made[8]), std::move(made[9]), std::move(made[10])};
}

std::int64_t ObjectRecord::hours(WallTime time) {
    return std::chrono::duration_cast<std::chrono::hours>(time.time_since_epoch()).count();
}

std::optional<std::string> ObjectRecord::key_of(std::string_view name) const {
    if (name.size() <= store_.size() || !name.starts_with(store_) || name[store_.size()] != '\n') {
        return std::nullopt;
    }
    return std::string(name.substr(store_.size() + 1));
}

Failure ObjectRecord::damaged_name() const {
    return damage(format("{}: a damaged name", escaped(path_)));
}

Result<ObjectRecord::Row> ObjectRecord::row_of(const sqlite::Statement& found) const {
    const std::string_view name = found.bytes(0);
    const std::string_view text = found.bytes(1);
    std::optional<std::string> key = key_of(name);
    if (!key) {
        return damaged_name();
    }
    Row row;
    row.key = std::move(*key);
    row.seen_at = found.number(4);
    row.body_hash = found.is_null(3) ? std::nullopt : std::optional(found.number(3));
    const std::string_view etag = found.bytes(5);
    const auto size = static_cast<std::uint64_t>(found.number(6));
    std::optional<SeenObject> seen = hash_of(name, text) == found.number(2) ? object_of_text(text) : std::nullopt;
    if (seen && seen->info.etag == etag && seen->info.size == size) {
        row.seen = std::move(*seen);
    } else {
        row.is_damaged = true;
        row.seen.is_described = false;
        row.seen.info.etag = etag;
        row.seen.info.size = size;
    }
    row.seen.info.key = row.key;
    return row;
}

Result<std::optional<ObjectRecord::Row>> ObjectRecord::row(const std::string& key) {
    const std::string name = this->name(key);
    const Result<bool> found = statements_.find.bind(1, name).next();
    if (!found) {
        return failure(found.error());
    }
    Result<std::optional<Row>> answer = std::nullopt;
    if (*found) {
        Result<Row> row = row_of(statements_.find);
        answer = row ? Result<std::optional<Row>>(std::move(*row)) : failure(std::move(row.error()));
    }
    statements_.find.end();
    return answer;
}

std::int64_t ObjectRecord::hash_of_body(const SeenObject& seen) const {
    return hash_of(name(seen.info.key), seen.info.etag + *seen.body);
}

Status ObjectRecord::put(const SeenObject& seen, WallTime now) {
    const std::string name = this->name(seen.info.key);
    const std::string text = text_of_object(seen);
    ++changes_;
    statements_.put.bind(1, name).bind(2, hours(now)).bind(3, text).bind(4, hash_of(name, text));
    statements_.put.bind(7, seen.info.etag).bind(8, static_cast<std::int64_t>(seen.info.size));
    if (seen.body) {
        statements_.put.bind(5, *seen.body).bind(6, hash_of_body(seen));
    } else {
        statements_.put.bind_null(5).bind_null(6);
    }
    return statements_.put.run();
}

Status ObjectRecord::there(const SeenObject& seen, WallTime now) {
    Result<std::optional<Row>> found = row(seen.info.key);
    if (!found) {
        return failure(std::move(found.error()));
    }
    if (!*found || (*found)->is_damaged || !is_same_version((*found)->seen.info, seen.info)) {
        return put(seen, now);
    }
    const Row& known = **found;
    const bool is_described = seen.is_described && !known.seen.is_described;
    const bool is_newer = seen.is_described && text_of_object(seen) != text_of_object(known.seen);
    const bool has_body = seen.body && known.body_hash != hash_of_body(seen);
    if (!is_described && !is_newer && !has_body) {
        return touch(seen.info.key, known.seen_at, now);
    }
    SeenObject both = seen.is_described ? seen : known.seen;
    both.body = seen.body;
    if (!both.body && known.body_hash) {
        Result<std::optional<std::string>> bytes = body(known.key, known.seen.info.etag);
        if (!bytes) {
            return failure(std::move(bytes.error()));
        }
        both.body = std::move(*bytes);
    }
    return put(both, now);
}

Status ObjectRecord::touch(const std::string& key, std::int64_t seen, WallTime now) {
    if (seen == hours(now)) {
        return {};
    }
    const std::string name = this->name(key);
    return statements_.touch.bind(1, hours(now)).bind(2, name).run();
}

Status ObjectRecord::gone(const std::string& key) {
    const std::string name = this->name(key);
    const Status removed = statements_.remove.bind(1, name).run();
    changes_ += database_.rows_changed();
    return removed;
}

Status ObjectRecord::copied(const CopyRequest& copy, const PutResponse& written, WallTime now) {
    Result<std::optional<Row>> found = row(copy.source_key);
    if (!found) {
        return failure(std::move(found.error()));
    }
    if (!*found || (*found)->is_damaged ||
        (!copy.source_if_match.empty() && (*found)->seen.info.etag != copy.source_if_match)) {
        // The source is not known: the copy is there, is not empty, and cannot be read.
        SeenObject unknown{{}, false};
        unknown.info.key = copy.key;
        unknown.info.size = 1;
        unknown.info.etag = written.etag;
        unknown.info.last_modified = written.last_modified;
        return put(unknown, now);
    }
    SeenObject made = (*found)->seen;
    Result<std::optional<std::string>> bytes = body(copy.source_key, made.info.etag);
    if (!bytes) {
        return failure(std::move(bytes.error()));
    }
    made.body = std::move(*bytes);
    if (copy.description) {
        const std::uint64_t size = made.info.size;
        made.info = *copy.description;
        made.info.size = size;
        made.is_described = true;
    }
    made.info.key = copy.key;
    made.info.etag = written.etag;
    made.info.last_modified = written.last_modified;
    return put(made, now);
}

Status ObjectRecord::forget_all() {
    return remove_below("");
}

Status ObjectRecord::trim(std::uint64_t limit) {
    const Result<std::int64_t> page = database_.number("PRAGMA page_size");
    const Result<std::int64_t> pages = database_.number("PRAGMA page_count");
    const Result<std::int64_t> unused = database_.number("PRAGMA freelist_count");
    if (!page || !pages || !unused) {
        return failure(!page ? page.error() : !pages ? pages.error() : unused.error());
    }
    const auto taken = static_cast<std::uint64_t>(*page * (*pages - *unused));
    if (taken <= limit) {
        return {};
    }
    const Result<std::int64_t> rows = database_.number("SELECT count(*) FROM objects");
    if (!rows) {
        return failure(rows.error());
    }
    // As if all rows took the same space.
    const std::uint64_t over = taken - limit + limit / kSpareShare;
    const auto going =
        static_cast<std::int64_t>(static_cast<double>(*rows) * static_cast<double>(over) / static_cast<double>(taken));
    ++changes_;
    return statements_.oldest.bind(1, going + 1).run();
}

Result<std::optional<SeenObject>> ObjectRecord::find(const std::string& key) {
    Result<std::optional<Row>> found = row(key);
    if (!found) {
        return failure(std::move(found.error()));
    }
    return *found ? std::optional(std::move((*found)->seen)) : std::nullopt;
}

Result<std::optional<std::string>> ObjectRecord::body(const std::string& key, const std::string& etag) {
    const std::string name = this->name(key);
    const Result<bool> found = statements_.body.bind(1, name).next();
    if (!found) {
        return failure(found.error());
    }
    std::optional<std::string> bytes;
    if (*found && !statements_.body.is_null(0)) {
        bytes = std::string(statements_.body.bytes(0));
        if (hash_of(name, etag + *bytes) != statements_.body.number(1)) {
            bytes.reset();
        }
    }
    statements_.body.end();
    return bytes;
}

Status ObjectRecord::forget_body(const std::string& key) {
    const std::string name = this->name(key);
    return statements_.forget_body.bind(1, name).run();
}

}  // namespace ckptfs
