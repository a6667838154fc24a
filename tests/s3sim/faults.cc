// SPDX-License-Identifier: Apache-2.0
#include "faults.h"

#include <array>
#include <iterator>

namespace ckptfs::s3sim {
namespace {

struct NamedAction {
    std::string_view name;
    FaultAction action;
    std::string_view error_code;
};

constexpr auto kActions = std::to_array<NamedAction>({
    {"error", FaultAction::kError, "InternalError"},
    {"400", FaultAction::kError, "InvalidRequest"},
    {"403", FaultAction::kError, "AccessDenied"},
    {"404", FaultAction::kError, "NoSuchKey"},
    {"409", FaultAction::kError, "ConditionalRequestConflict"},
    {"412", FaultAction::kError, "PreconditionFailed"},
    {"500", FaultAction::kError, "InternalError"},
    {"501", FaultAction::kError, "NotImplemented"},
    {"503", FaultAction::kError, "ServiceUnavailable"},
    {"slowdown", FaultAction::kError, "SlowDown"},
    {"request-timeout", FaultAction::kError, "RequestTimeout"},
    {"expired-token", FaultAction::kError, "ExpiredToken"},
    {"skew", FaultAction::kError, "RequestTimeTooSkewed"},
    {"access-denied", FaultAction::kError, "AccessDenied"},
    {"no-such-key", FaultAction::kError, "NoSuchKey"},
    {"no-such-upload", FaultAction::kError, "NoSuchUpload"},
    {"precondition-failed", FaultAction::kError, "PreconditionFailed"},
    {"conflict", FaultAction::kError, "ConditionalRequestConflict"},
    {"bad-digest", FaultAction::kError, "BadDigest"},
    {"200-error", FaultAction::kErrorInside200, "InternalError"},
    {"performed-but-500", FaultAction::kErrorAfterwards, "InternalError"},
    {"performed-but-reply-lost", FaultAction::kReplyLost, ""},
    {"performed-late", FaultAction::kPerformedLate, ""},
    {"reset", FaultAction::kReset, ""},
    {"close", FaultAction::kClose, ""},
    {"hang", FaultAction::kHang, ""},
    {"truncate", FaultAction::kTruncate, ""},
    {"corrupt", FaultAction::kCorrupt, ""},
    {"slow", FaultAction::kSlow, ""},
    {"blanks", FaultAction::kBlanks, ""},
});

bool counts(const FaultRule& rule, std::string_view operation, std::string_view key, int part) {
    return glob_matches(rule.operation, operation) && glob_matches(rule.key, key) && (!rule.part || *rule.part == part);
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view text) {
    std::size_t p = 0;
    std::size_t t = 0;
    std::optional<std::size_t> star;
    std::size_t star_text = 0;
    while (t < text.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            star_text = t;
        } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
            ++p;
            ++t;
        } else if (star) {
            p = *star + 1;
            t = ++star_text;
        } else {
            return false;
        }
    }
    return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::optional<Fault> fault_of_name(std::string_view name) {
    for (const NamedAction& known : kActions) {
        if (known.name == name) {
            Fault fault;
            fault.action = known.action;
            if (!known.error_code.empty()) {
                fault.error = s3_error(known.error_code);
            }
            return fault;
        }
    }
    return std::nullopt;
}

std::vector<std::string_view> fault_names() {
    std::vector<std::string_view> names;
    for (const NamedAction& known : kActions) {
        names.push_back(known.name);
    }
    return names;
}

void FaultTable::add(std::vector<FaultRule> rules) {
    const std::lock_guard lock(mutex_);
    std::move(rules.begin(), rules.end(), std::back_inserter(rules_));
}

void FaultTable::clear() {
    const std::lock_guard lock(mutex_);
    rules_.clear();
}

std::vector<FaultRule> FaultTable::rules() const {
    const std::lock_guard lock(mutex_);
    return rules_;
}

std::optional<NamedFault> FaultTable::strike(std::string_view operation, std::string_view key, int part) {
    const std::lock_guard lock(mutex_);
    std::optional<NamedFault> struck;
    for (FaultRule& rule : rules_) {
        if (!counts(rule, operation, key, part)) {
            continue;
        }
        ++rule.matches;
        const bool due = rule.matches > rule.skip && (rule.matches - rule.skip) % rule.every == 0 &&
                         rule.hits < rule.times.value_or(rule.hits + 1);
        if (due && !struck) {
            ++rule.hits;
            struck = NamedFault{rule.name, rule.fault};
        }
    }
    return struck;
}

}  // namespace ckptfs::s3sim
