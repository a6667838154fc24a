// SPDX-License-Identifier: Apache-2.0
// The SQLite library: a database in a file that several processes use at the same time.
//
// A power cut or a kill may lose the last transactions, but never leaves half of one (WAL, synchronous=NORMAL).
//
// Ownership: a database outlives its statements. The bytes of a column are valid until the statement's next call.
// Threads: used by one thread at a time; all functions wait for the disk, and for other processes for a while.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ckptfs/bytes.h"
#include "ckptfs/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace ckptfs::sqlite {

class Statement {
public:
    // The first parameter is 1. The bytes stay valid until the statement has run.
    Statement& bind(int parameter, std::string_view bytes);
    Statement& bind(int parameter, std::int64_t number);
    Statement& bind_null(int parameter);

    // Whether there is another row. If there is none, or on failure, the statement is reset and its bindings are
    // cleared.
    Result<bool> next();
    // Runs a statement that returns no rows.
    Status run();
    // Resets the statement and clears its bindings.
    void end();

    // The first column is 0.
    [[nodiscard]] std::string_view bytes(int column) const;
    [[nodiscard]] std::int64_t number(int column) const;
    [[nodiscard]] bool is_null(int column) const;

private:
    friend class Database;
    struct Finalize {
        void operator()(sqlite3_stmt* statement) const;
    };
    explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}

    std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class Database {
public:
    // kWrite creates a missing database, for this user alone. Damage is marked as such in the error.
    enum class Access : std::uint8_t { kRead, kWrite };
    static Result<Database> open(const std::string& path, Access access);

    [[nodiscard]] Result<Statement> prepare(const char* text) const;
    // Runs statements without parameters.
    Status run(const char* text) const;
    // Runs a statement that returns a number.
    [[nodiscard]] Result<std::int64_t> number(const char* text) const;
    // Runs a statement that returns a text; empty if it returns none.
    [[nodiscard]] Result<std::string> text(const char* text) const;
    // Rows changed by the last statement that changes any.
    [[nodiscard]] int rows_changed() const;

private:
    struct Close {
        void operator()(sqlite3* database) const;
    };
    explicit Database(sqlite3* database) : database_(database) {}

    std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace ckptfs::sqlite
