// SPDX-License-Identifier: Apache-2.0
// The first failure of a file, and what is ended in the store: because of it, of an abort, or of a file that starts
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

    // What every later call on the file gets; empty as long as it has not failed.
    [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }
    // The first one only: kept, and told.
    void fail(Error error);
    // A first failure is in the log whether or not a later call reports it.
    void log(const Error& error);
    // Who asked for it by when_failed() is told once, also before the file learns of its failure.
    void tell(const Error& error);
    void when_failed(std::function<void(const Error&)> told) { when_failed_ = std::move(told); }

    // Ends something of a failed file once other mounts see that it is missing (FileWriter::before_ending).
    void end_when_told(End end);
    void before_ending(FileWriter::Wait wait) { before_ending_ = std::move(wait); }
    // What a failed writer of the file ends, while it is open whether the file fails with it.
    void end_when_decided(End end) { undecided_.push_back(std::move(end)); }
    // It does not.
    void goes_on();

    // What is being ended, and the waiters for that.
    void begin() { ++under_way_; }
    void ended(const Status& status);
    [[nodiscard]] bool is_under_way() const { return under_way_ > 0; }
    void when_ended(FileWriter::Done done) { waiting_.push_back(std::move(done)); }
    // With the last error since all had ended before, once nothing is under way.
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
