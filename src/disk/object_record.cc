// SPDX-License-Identifier: Apache-2.0
#include "disk/object_record.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "base/text.h"
#include "base/xxhash.h"
#include "ckptfs/log.h"
#include "disk/object_text.h"

namespace ckptfs {
namespace {

// Of the tables below.
constexpr std::int64_t kVersion = 1;

// `name`: the store's, a line feed, which no endpoint and no bucket holds, and the key. `etag` and `size` are those of
// `text`, for comparing listings. `seen`: hours, so that reading a file again seldom writes. Each hash is of the name,
// too.
constexpr const char* kSchema =
    "CREATE TABLE IF NOT EXISTS objects ("
    "name BLOB PRIMARY KEY, seen INTEGER NOT NULL, etag BLOB NOT NULL, size INTEGER NOT NULL, "
    "text BLOB NOT NULL, text_hash INTEGER NOT NULL, body BLOB, body_hash INTEGER); PRAGMA user_version=1";

// Rows read at once.
constexpr int kBatch = 256;
constexpr int kFewest = 16;
// Whose last listing is known.
constexpr std::size_t kMostPages = 1024;
// Of what is over the limit a part more goes, so that not each batch makes room.
constexpr std::uint64_t kSpareShare = 8;

std::int64_t hours(WallTime time) {
    return std::chrono::duration_cast<std::chrono::hours>(time.time_since_epoch()).count();
}

std::int64_t hash_of(std::string_view name, std::string_view what) {
    std::string text(name);
    text.push_back('\0');
    text += what;
    return static_cast<std::int64_t>(xxh3(text));
}

// What comes behind everything that begins so; names are compared byte by byte.
std::string behind_all(std::string prefix) {
    while (!prefix.empty() && prefix.back() == '\xFF') {
        prefix.pop_back();
    }
    if (!prefix.empty()) {
        prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
    }
    return prefix;
}

// What a listing with a delimiter shows for a key; empty where it shows the key.
std::string common_prefix(const std::string& key, const ListRequest& request) {
    const std::size_t end =
        request.delimiter.empty() ? std::string::npos : key.find(request.delimiter, request.prefix.size());
    return end == std::string::npos ? "" : key.substr(0, end + request.delimiter.size());
}

std::vector<std::string> names_of(const ListResponse& page) {
    std::vector<std::string> names = page.common_prefixes;
    for (const ObjectInfo& object : page.objects) {
        names.push_back(object.key);
    }
    return names;
}

// What is recorded of it.
std::uint64_t hash_of_page(const ListResponse& page) {
    std::string text = page.next_continuation_token.empty() ? "last" : "";
    for (const std::string& prefix : page.common_prefixes) {
        text += prefix + '\n';
    }
    for (const ObjectInfo& object : page.objects) {
        text += format("{}\n{}\n{}\n", object.key, object.etag, object.size);
    }
    return xxh3(text);
}

}  // namespace

Result<std::unique_ptr<ObjectRecord>> ObjectRecord::open(const std::string& directory, const std::string& store) {
    const std::string path = path_in(directory);
    Result<std::unique_ptr<ObjectRecord>> opened = open_now(path, store);
    if (opened || !opened.error().damaged) {
        return opened;
    }
    log_warning(format("begun anew: {}", opened.error().message));
    if (Status removed = remove(directory); !removed) {
        return failure(std::move(removed.error()));
    }
    return open_now(path, store);
}

Status ObjectRecord::remove(const std::string& directory) {
    const std::string path = path_in(directory);
    for (const char* const end : {"", "-wal", "-shm"}) {
        if (::unlink((path + end).c_str()) != 0 && errno != ENOENT) {
            return failure(errno, format("cannot remove {}{}: {}", escaped(path), end, std::strerror(errno)));
        }
    }
    return {};
}

Result<std::unique_ptr<ObjectRecord>> ObjectRecord::open_now(const std::string& path, const std::string& store) {
    Result<sqlite::Database> database = sqlite::Database::open(path);
    if (!database) {
        return failure(std::move(database.error()));
    }
    const Result<std::int64_t> version = database->number("PRAGMA user_version");
    if (!version) {
        return failure(version.error());
    }
    if (*version != 0 && *version != kVersion) {
        return damage(format("{}: of another version of ckptfs", escaped(path)));
    }
    if (Status made = database->run(kSchema); !made) {
        return failure(std::move(made.error()));
    }
    Result<Statements> statements = prepare(*database);
    if (!statements) {
        return failure(std::move(statements.error()));
    }
    return std::unique_ptr<ObjectRecord>(new ObjectRecord(std::move(*database), std::move(*statements), store));
}

Result<ObjectRecord::Statements> ObjectRecord::prepare(const sqlite::Database& database) {
    std::vector<sqlite::Statement> made;
    for (const char* const text : {
             "PRAGMA data_version",
             "SELECT name, text, text_hash, body IS NOT NULL, seen FROM objects WHERE name = ?",
             "SELECT body, body_hash FROM objects WHERE name = ?",
             "INSERT OR REPLACE INTO objects (name, seen, text, text_hash, body, body_hash, etag, size) "
             "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
             "UPDATE objects SET seen = ? WHERE name = ?",
             "DELETE FROM objects WHERE name = ?",
             "DELETE FROM objects WHERE name >= ? AND name < ?",
             "SELECT name, text, text_hash, body IS NOT NULL, seen FROM objects WHERE name >= ? AND name < ? "
             "ORDER BY name LIMIT ?",
             "SELECT name, etag, size, seen FROM objects WHERE name >= ? AND name < ? ORDER BY name LIMIT ?",
             "UPDATE objects SET body = NULL, body_hash = NULL WHERE name = ?",
             "DELETE FROM objects WHERE name IN (SELECT name FROM objects ORDER BY seen LIMIT ?)",
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

std::optional<ObjectRecord::Row> ObjectRecord::row_of(const sqlite::Statement& found) const {
    const std::string_view name = found.bytes(0);
    const std::string_view text = found.bytes(1);
    if (hash_of(name, text) != found.number(2)) {
        return std::nullopt;
    }
    std::optional<SeenObject> seen = object_of_text(text);
    if (!seen || name.size() <= store_.size()) {
        return std::nullopt;
    }
    Row row{std::string(name.substr(store_.size() + 1)), std::move(*seen), found.number(3) != 0, found.number(4)};
    row.seen.info.key = row.key;
    return row;
}

Result<std::optional<ObjectRecord::Row>> ObjectRecord::row(const std::string& key) {
    const std::string name = this->name(key);
    const Result<bool> found = statements_.find.bind(1, name).next();
    if (!found) {
        return failure(found.error());
    }
    std::optional<Row> row = *found ? row_of(statements_.find) : std::nullopt;
    statements_.find.end();
    return row;
}

Result<ObjectRecord::Rows> ObjectRecord::rows_from(const std::string& key, const std::string& prefix, int most) {
    const std::string first = name(key);
    const std::string end = behind_all(name(prefix));
    statements_.from.bind(1, first).bind(2, end).bind(3, most);
    Rows found;
    for (int count = 0;; ++count) {
        const Result<bool> is_there = statements_.from.next();
        if (!is_there) {
            return failure(is_there.error());
        }
        if (!*is_there) {
            if (count < most) {
                found.next.clear();
            }
            return found;
        }
        found.next = std::string(statements_.from.bytes(0).substr(store_.size() + 1)) + '\0';
        if (std::optional<Row> row = row_of(statements_.from)) {
            found.rows.push_back(std::move(*row));
        }
    }
}

Status ObjectRecord::put(const SeenObject& seen, WallTime now) {
    const std::string name = this->name(seen.info.key);
    const std::string text = text_of_object(seen);
    ++changes_;
    statements_.put.bind(1, name).bind(2, hours(now)).bind(3, text).bind(4, hash_of(name, text));
    statements_.put.bind(7, seen.info.etag).bind(8, static_cast<std::int64_t>(seen.info.size));
    if (seen.body) {
        statements_.put.bind(5, *seen.body).bind(6, hash_of(name, seen.info.etag + *seen.body));
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
    if (!*found || (*found)->seen.info.etag != seen.info.etag || (*found)->seen.info.size != seen.info.size) {
        return put(seen, now);
    }
    const Row& known = **found;
    const bool is_described = seen.is_described && !known.seen.is_described;
    const bool is_newer = seen.is_described && text_of_object(seen) != text_of_object(known.seen);
    const bool has_body = seen.body && !known.has_body;
    if (!is_described && !is_newer && !has_body) {
        return touch(seen.info.key, known.seen_at, now);
    }
    SeenObject both = seen.is_described ? seen : known.seen;
    both.body = seen.body;
    if (!both.body && known.has_body) {
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
    ++changes_;
    const std::string name = this->name(key);
    return statements_.remove.bind(1, name).run();
}

Status ObjectRecord::copied(const CopyRequest& copy, const PutResponse& written, WallTime now) {
    Result<std::optional<Row>> found = row(copy.source_key);
    if (!found) {
        return failure(std::move(found.error()));
    }
    if (!*found || (!copy.source_if_match.empty() && (*found)->seen.info.etag != copy.source_if_match)) {
        // What it is of is not known.
        return gone(copy.key);
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

Result<std::int64_t> ObjectRecord::changes() {
    const Result<bool> row = statements_.data_version.next();
    if (!row) {
        return failure(row.error());
    }
    if (const std::int64_t version = *row ? statements_.data_version.number(0) : 0; version != data_version_) {
        data_version_ = version;
        ++changes_;
    }
    statements_.data_version.end();
    return changes_;
}

// A listing that is repeated, as one is while its directory is read, costs no look at the rows.
Status ObjectRecord::listed(const ListRequest& request, const ListResponse& page, WallTime now) {
    const Result<std::int64_t> before = changes();
    if (!before) {
        return failure(before.error());
    }
    const std::string asked = format("{}\n{}\n{}\n{}\n{}", hours(now), request.delimiter, request.start_after,
                                     request.continuation_token, request.prefix);
    const std::uint64_t hash = hash_of_page(page);
    if (const auto found = pages_.find(asked);
        found != pages_.end() && found->second.changes == *before && found->second.hash == hash) {
        return {};
    }
    if (Status listed = list_now(request, page, now); !listed) {
        return listed;
    }
    if (pages_.size() >= kMostPages) {
        pages_.clear();
    }
    pages_[asked] = {changes_, hash};
    return {};
}

// What is recorded of the range that the page covers, and is not on it, is gone.
Status ObjectRecord::list_now(const ListRequest& request, const ListResponse& page, WallTime now) {
    const Result<std::vector<NamedVersion>> recorded = recorded_of(request, page);
    if (!recorded) {
        return failure(recorded.error());
    }
    const std::set<std::string_view> prefixes(page.common_prefixes.begin(), page.common_prefixes.end());
    std::unordered_map<std::string_view, const ObjectInfo*> shown;
    for (const ObjectInfo& object : page.objects) {
        shown.emplace(object.key, &object);
    }
    for (const NamedVersion& each : *recorded) {
        Status noted;
        if (!each.version) {
            noted = prefixes.contains(each.name) ? Status() : remove_below(each.name);
        } else if (const auto found = shown.find(each.name); found == shown.end()) {
            noted = gone(each.name);
        } else if (each.version->is_of(*found->second)) {
            noted = touch(each.name, each.version->seen, now);
            shown.erase(found);
        }
        if (!noted) {
            return noted;
        }
    }
    for (const auto& [key, object] : shown) {
        if (Status noted = there({*object, false}, now); !noted) {
            return noted;
        }
    }
    return {};
}

Result<std::vector<ObjectRecord::NamedVersion>> ObjectRecord::recorded_of(const ListRequest& request,
                                                                          const ListResponse& page) {
    const std::vector<std::string> names = names_of(page);
    const bool is_last = page.next_continuation_token.empty();
    if (names.empty() && !(is_last && request.continuation_token.empty())) {
        return {};
    }
    const std::string last = is_last ? "" : *std::max_element(names.begin(), names.end());
    // Where the page before it has ended is not always known.
    const std::string after =
        request.continuation_token.empty() ? request.start_after : *std::min_element(names.begin(), names.end());
    const std::string end = behind_all(name(request.prefix));
    std::vector<NamedVersion> recorded;
    std::string from = std::max(after, request.prefix);
    for (bool is_done = false; !is_done;) {
        const std::string begin = name(from);
        sqlite::Statement& row = statements_.versions_from;
        row.bind(1, begin).bind(2, end).bind(3, kBatch);
        int count = 0;
        for (;; ++count) {
            const Result<bool> is_there = row.next();
            if (!is_there) {
                return failure(is_there.error());
            }
            if (!*is_there) {
                break;
            }
            std::string key(row.bytes(0).substr(store_.size() + 1));
            if (key < from) {
                continue;
            }
            std::string shown = common_prefix(key, request);
            const bool is_prefix = !shown.empty();
            if (!is_prefix) {
                shown = key;
            }
            if (!is_last && shown > last) {
                row.end();
                return recorded;
            }
            from = is_prefix ? behind_all(shown) : key + '\0';
            if (shown > after || after.empty()) {
                std::optional<Version> version;
                if (!is_prefix) {
                    version = {std::string(row.bytes(1)), static_cast<std::uint64_t>(row.number(2)), row.number(3)};
                }
                recorded.push_back({std::move(shown), std::move(version)});
            }
        }
        is_done = count < kBatch || from.empty();
    }
    return recorded;
}

Status ObjectRecord::remove_below(const std::string& prefix) {
    ++changes_;
    const std::string begin = name(prefix);
    const std::string end = behind_all(begin);
    return statements_.remove_range.bind(1, begin).bind(2, end).run();
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
    // As if all took the same.
    const std::uint64_t over = taken - limit + limit / kSpareShare;
    const auto going =
        static_cast<std::int64_t>(static_cast<double>(*rows) * static_cast<double>(over) / static_cast<double>(taken));
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

// A directory below is one entry, however much is in it: what comes behind it is sought.
Result<ListResponse> ObjectRecord::list(const ListRequest& request) {
    ListResponse response;
    const std::string& after = request.continuation_token.empty() ? request.start_after : request.continuation_token;
    std::string from = after < request.prefix ? request.prefix : after + '\0';
    // One shows whether there are more.
    const int most = std::clamp(request.max_keys + 1, kFewest, kBatch);
    std::string last;
    while (!from.empty()) {
        Result<Rows> found = rows_from(from, request.prefix, most);
        if (!found) {
            return failure(std::move(found.error()));
        }
        for (Row& row : found->rows) {
            if (row.key < from) {
                continue;
            }
            std::string shown = common_prefix(row.key, request);
            if (!shown.empty() && shown <= after) {
                // The last page has ended with it.
                from = behind_all(shown);
                continue;
            }
            if (response.objects.size() + response.common_prefixes.size() ==
                static_cast<std::size_t>(request.max_keys)) {
                response.next_continuation_token = last;
                return response;
            }
            last = shown.empty() ? row.key : shown;
            if (shown.empty()) {
                from = row.key + '\0';
                response.objects.push_back(std::move(row.seen.info));
            } else {
                from = behind_all(shown);
                response.common_prefixes.push_back(std::move(shown));
            }
        }
        from = found->next.empty() ? "" : std::max(from, found->next);
    }
    return response;
}

}  // namespace ckptfs
