// SPDX-License-Identifier: Apache-2.0
#include "disk/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs::sqlite {
namespace {

// Another process writes for milliseconds.
constexpr int kWaitsForOthersMs = 2'000;

int errno_of(int code) {
    switch (code & 0xFF) {
        case SQLITE_FULL:
            return ENOSPC;
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
            return EBUSY;
        case SQLITE_READONLY:
            return EROFS;
        case SQLITE_NOMEM:
            return ENOMEM;
        default:
            return EIO;
    }
}

Failure failed(sqlite3* database) {
    const int code = database == nullptr ? SQLITE_NOMEM : sqlite3_extended_errcode(database);
    const char* const path = database == nullptr ? nullptr : sqlite3_db_filename(database, "main");
    const std::string message =
        format("{}: {}", path == nullptr ? "SQLite" : escaped(path), escaped(sqlite3_errstr(code)));
    const int kind = code & 0xFF;
    return kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB ? damage(message) : failure(errno_of(code), message);
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const {
    sqlite3_finalize(statement);
}

void Database::Close::operator()(sqlite3* database) const {
    sqlite3_close_v2(database);
}

Statement& Statement::bind(int parameter, std::string_view bytes) {
    // Without an address it would be NULL.
    const char* const begin = bytes.data() == nullptr ? "" : bytes.data();
    sqlite3_bind_blob64(statement_.get(), parameter, begin, bytes.size(), SQLITE_STATIC);
    return *this;
}

Statement& Statement::bind(int parameter, std::int64_t number) {
    sqlite3_bind_int64(statement_.get(), parameter, number);
    return *this;
}

Statement& Statement::bind_null(int parameter) {
    sqlite3_bind_null(statement_.get(), parameter);
    return *this;
}

Result<bool> Statement::next() {
    const int code = sqlite3_step(statement_.get());
    if (code == SQLITE_ROW) {
        return true;
    }
    Result<bool> answer = false;
    if (code != SQLITE_DONE) {
        answer = failed(sqlite3_db_handle(statement_.get()));
    }
    end();
    return answer;
}

Status Statement::run() {
    Result<bool> row = next();
    if (!row) {
        return failure(std::move(row.error()));
    }
    end();
    return {};
}

void Statement::end() {
    sqlite3_reset(statement_.get());
    sqlite3_clear_bindings(statement_.get());
}

std::string_view Statement::bytes(int column) const {
    const auto* const begin = static_cast<const char*>(sqlite3_column_blob(statement_.get(), column));
    const int size = sqlite3_column_bytes(statement_.get(), column);
    return begin == nullptr ? std::string_view() : std::string_view(begin, static_cast<std::size_t>(size));
}

std::int64_t Statement::number(int column) const {
    return sqlite3_column_int64(statement_.get(), column);
}

bool Statement::is_null(int column) const {
    return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

Result<Database> Database::open(const std::string& path, Access access) {
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (access == Access::kWrite ? O_CREAT : 0);
    // SQLite would create it readable for all, as far as the umask allows; the files that SQLite creates beside it have
    // its mode.
    if (!FileDescriptor(::open(path.c_str(), flags, S_IRUSR | S_IWUSR))) {
        return failure(errno, format("cannot open {}: {}", escaped(path), std::strerror(errno)));
    }
    sqlite3* opened = nullptr;
    const int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
    Database database(opened);
    if (code != SQLITE_OK) {
        return failed(opened);
    }
    sqlite3_busy_timeout(opened, kWaitsForOthersMs);
    Status set = access == Access::kRead ? Status()
                                         : database.run(
                                               "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; "
                                               "PRAGMA journal_size_limit=16777216");
    return set ? Result<Database>(std::move(database)) : failure(std::move(set.error()));
}

Result<Statement> Database::prepare(const char* text) const {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v3(database_.get(), text, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr) != SQLITE_OK) {
        return failed(database_.get());
    }
    return Statement(statement);
}

Status Database::run(const char* text) const {
    if (sqlite3_exec(database_.get(), text, nullptr, nullptr, nullptr) != SQLITE_OK) {
        return failed(database_.get());
    }
    return {};
}

Result<std::int64_t> Database::number(const char* text) const {
    Result<Statement> statement = prepare(text);
    if (!statement) {
        return failure(std::move(statement.error()));
    }
    const Result<bool> row = statement->next();
    if (!row) {
        return failure(row.error());
    }
    return *row ? statement->number(0) : 0;
}

Result<std::string> Database::text(const char* text) const {
    Result<Statement> statement = prepare(text);
    if (!statement) {
        return failure(std::move(statement.error()));
    }
    const Result<bool> row = statement->next();
    if (!row) {
        return failure(row.error());
    }
    return *row ? std::string(statement->bytes(0)) : std::string();
}

int Database::rows_changed() const {
    return sqlite3_changes(database_.get());
}

}  // namespace ckptfs::sqlite
