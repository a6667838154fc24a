// SPDX-License-Identifier: Apache-2.0
#pragma once

// Faults by rule: which request goes wrong, and how; README.md has the rules as tests write them. Thread-safe.

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "outcome.h"
#include "pacer.h"

namespace ckptfs::s3sim {

enum class FaultAction {
    kError,            // answer an error, do nothing
    kErrorInside200,   // the same, but under the status 200
    kErrorAfterwards,  // do it, then answer an error
    kReplyLost,        // do it, then reset the connection
    kPerformedLate,    // reset the connection, and do it `time` later
    kReset,            // reset, after `bytes` of the body where there is one
    kClose,            // the same with an orderly end
    kHang,             // fall silent, after `bytes` of the body where there is one
    kTruncate,         // end the reply after `bytes` of its body
    kCorrupt,          // invert a bit at `bytes` of what is sent or received
    kSlow,             // wait `time`, move at `bytes_per_second`
    kBlanks,           // status 200 at once, blanks for `time`, then the result
};

struct Fault {
    FaultAction action = FaultAction::kError;
    S3Error error;  // of the error actions
    std::optional<std::uint64_t> bytes;
    std::optional<Duration> time;
    std::optional<double> bytes_per_second;
};

struct FaultRule {
    std::string name;             // the action as the rule spelt it
    std::string operation = "*";  // glob
    std::string key = "*";        // glob
    std::optional<int> part;
    std::uint64_t skip = 0;              // this many matches go well first
    std::uint64_t every = 1;             // then every so many-th goes wrong
    std::optional<std::uint64_t> times;  // at most so often
    Fault fault;

    std::uint64_t matches = 0;
    std::uint64_t hits = 0;
};

struct NamedFault {
    std::string name;
    Fault fault;
};

// "*" stands for any run of characters, "/" included; "?" for any one.
bool glob_matches(std::string_view pattern, std::string_view text);

// The fault of a short name ("403", "500", "reset", "performed-but-reply-lost", ...); nothing for an unknown one.
std::optional<Fault> fault_of_name(std::string_view name);
// All of them.
std::vector<std::string_view> fault_names();

class FaultTable {
public:
    void add(std::vector<FaultRule> rules);
    void clear();
    std::vector<FaultRule> rules() const;

    // Counts the request against every rule that it matches; the first that strikes decides.
    std::optional<NamedFault> strike(std::string_view operation, std::string_view key, int part);

private:
    mutable std::mutex mutex_;
    std::vector<FaultRule> rules_;  // guarded by mutex_
};

}  // namespace ckptfs::s3sim
