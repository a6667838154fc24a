// SPDX-License-Identifier: Apache-2.0
// The first failure of a file, and what is ended in the store because of it, of an abort, or because the file starts
// over.
//
// Guarded by its owner's mutex. Calls to the outside are put into its owner's outbox, which outlives it.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/outbox.h"
#include "ckptfs/status.h"
#include "write/file_writer.h"

namespace ckptfs {

class FileEnd {
public:
    using End = std::function<void()>;

    explicit FileEnd(Outbox& outbox) : outbox_(outbox) {}

    // The error of every later call on the file; empty as long as the file has not failed.
    [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }
    // Keeps the first failure, and reports it by tell(); ignores later ones.
    void fail(Error error);
    // Logs a first failure, whether or not a later call reports it.
    void log(const Error& error);
    // Calls what when_failed() has set, once; also used before the file itself fails.
    void tell(const Error& error);
    void when_failed(std::function<void(const Error&)> told) { when_failed_ = std::move(told); }

    // Ends something of a failed file once other mounts see that it is missing (FileWriter::before_ending).
    void end_when_told(End end);
    void before_ending(FileWriter::Wait wait) { before_ending_ = std::move(wait); }
    // Keeps what a failed writer of the file ends until it is decided whether the file fails, too.
    void end_when_decided(End end) { undecided_.push_back(std::move(end)); }
    // The file does not fail: makes the calls kept by end_when_decided().
    void goes_on();

    // Count what is being ended, and keep the waiters for that.
    void begin() { ++under_way_; }
    void ended(const Status& status);
    [[nodiscard]] bool is_under_way() const { return under_way_ > 0; }
    void when_ended(FileWriter::Done done) { waiting_.push_back(std::move(done)); }
    // Answers the waiters once nothing is being ended, with the last error since the previous time that was so.
    void answer();

private:
    Outbox& outbox_;
    std::optional<Error> failure_;
    std::function<void(const Error&)> when_failed_;
    FileWriter::Wait before_ending_;
    std::vector<End> undecided_;
    int under_way_ = 0;
    Status status_;
    std::vector<FileWriter::Done> waiting_;
};

}  // namespace ckptfs
