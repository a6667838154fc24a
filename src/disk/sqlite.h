// SPDX-License-Identifier: Apache-2.0
// The SQLite library: a database in a file that several processes use at the same time.
//
// What a power cut or a kill leaves of it is what the last transactions but for some made of it, never half of one
// (WAL, synchronous=NORMAL).
//
// Ownership: a database outlives its statements. What a statement answers is valid until its next call.
// Threads: used by one at a time; all functions wait for the disk, and for other processes for a while.
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
    // 1 is the first. The bytes stay as they are until the statement has run.
    Statement& bind(int parameter, std::string_view bytes);
    Statement& bind(int parameter, std::int64_t number);
    Statement& bind_null(int parameter);

    // Whether there is another row. Where there is none, or that fails, it begins anew the next time, without what was
    // bound.
    Result<bool> next();
    // One that answers no rows.
    Status run();
    // Begins anew the next time.
    void end();

    // 0 is the first.
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
    // For writing it is made where it is missing, for this user alone. Damage is marked as such.
    enum class Access : std::uint8_t { kRead, kWrite };
    static Result<Database> open(const std::string& path, Access access);

    [[nodiscard]] Result<Statement> prepare(const char* text) const;
    // Statements without parameters.
    Status run(const char* text) const;
    // Of one that answers a number.
    [[nodiscard]] Result<std::int64_t> number(const char* text) const;
    // Of one that answers a text; empty where it answers none.
    [[nodiscard]] Result<std::string> text(const char* text) const;
    // By the last statement that changes any.
    [[nodiscard]] int rows_changed() const;

private:
    struct Close {
        void operator()(sqlite3* database) const;
    };
    explicit Database(sqlite3* database) : database_(database) {}

    std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace ckptfs::sqlite
