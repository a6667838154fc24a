// SPDX-License-Identifier: Apache-2.0
// What the findings of `ckptfs doctor` mean, and which options to set. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/findings.h"

namespace ckptfs::doctor {

enum class Severity : std::uint8_t {
    kGood,
    // Worth knowing; no action needed.
    kNote,
    // Good once the options of the line are set.
    kSet,
    // Something that ckptfs does elsewhere does not work here.
    kLimit,
    kUnknown,
    // Keeps ckptfs from working.
    kProblem,
};
// "ok", "note", "set", "limit", "?", "FAILS"
[[nodiscard]] std::string_view mark_of(Severity severity);
// Stable, for machines.
[[nodiscard]] std::string_view name_of(Severity severity);

struct SuggestedOption {
    std::string name;
    // Empty for a switch, and where only the user knows it.
    std::string value;

    // Whether it can be typed as it stands.
    [[nodiscard]] bool is_complete() const;
    // "--region eu-west-1", "--profile NAME"
    [[nodiscard]] std::string text() const;

    friend bool operator==(const SuggestedOption&, const SuggestedOption&) = default;
};

struct DiagnosisLine {
    Probe probe = Probe::kEndpoint;
    Severity severity = Severity::kGood;
    // Both without a full stop and with control characters escaped; `means` is empty if all is well.
    std::string found;
    std::string means;
    std::vector<SuggestedOption> options;
    // Why the probe was not asked; empty if it was.
    std::string not_asked;
};

struct Diagnosis {
    std::string source;
    std::string origin;
    StoreFacts facts;
    // In the order of the probes.
    std::vector<DiagnosisLine> lines;
    bool interrupted = false;

    // Whether a mount here works with options() set.
    [[nodiscard]] bool usable() const;
    // The options that a mount here needs, complete and each once.
    [[nodiscard]] std::vector<SuggestedOption> options() const;
};

[[nodiscard]] Diagnosis diagnose(const Findings& findings);

// A larger number than is configured, if more connections would carry more: those that were used did not slow each
// other down.
[[nodiscard]] std::optional<int> advised_connections(const Rates& rates, int max_connections);

// For a person: a table, and what to do.
[[nodiscard]] std::string describe(const Diagnosis& diagnosis);

// 0: ckptfs can be used here, with the options that are named; 1: something keeps it from working, or not everything
// was asked.
[[nodiscard]] int exit_code(const Diagnosis& diagnosis);

}  // namespace ckptfs::doctor
