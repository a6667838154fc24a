// SPDX-License-Identifier: Apache-2.0
#include "doctor/diagnosis.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "config/options.h"
#include "doctor/rules.h"

namespace ckptfs::doctor {
namespace {

// Below this difference the clocks cannot be told apart: HTTP dates are whole seconds, and the reply travelled.
constexpr double kSameClock = 3;
// Heartbeats, records and ages of uploads are compared with a slack of minutes.
constexpr double kBearableSkew = 30;
// "RequestTimeTooSkewed", Amazon S3 API Reference.
constexpr double kRefusedSkew = 15 * 60;
// From here on the time to look up a name is felt.
constexpr double kFarAwayMs = 50;
// Connections that slow each other down carry less than this share of what they would carry alone.
constexpr double kStillGrows = 0.7;
constexpr int kMostConnections = 1024;

std::string megabytes(double bytes_a_second) {
    const double value = bytes_a_second / 1e6;
    return format("{:.{}f} MB/s", value, value < 10 ? 1 : 0);
}

DiagnosisLine line(Probe probe, Severity severity, std::string found, std::string means = {}) {
    return {probe, severity, std::move(found), std::move(means), {}, {}};
}

std::string joined(std::string_view what, const std::string& seen) {
    if (seen.empty()) {
        return std::string(what);
    }
    return what.empty() ? escaped(seen) : format("{}: {}", what, escaped(seen));
}

// For a probe that failed: it is unknown whether what it looks for is missing.
std::string means_if_missing(const ProbeRule& rule) {
    return rule.probe < Probe::kList ? std::string(rule.means) : format("without it: {}", rule.means);
}

// Whether the store says that it has no such operation, which a mount believes.
bool is_not_there(const Finding& finding) {
    return finding.http_status == 501 || finding.http_status == 405 || finding.s3_code == "NotImplemented";
}

DiagnosisLine by_rule(const Finding& finding) {
    const ProbeRule& rule = rule_of(finding.probe);
    switch (finding.answer) {
        case ProbeAnswer::kYes:
            return line(finding.probe, Severity::kGood, joined(rule.yes, finding.seen));
        case ProbeAnswer::kNo: {
            DiagnosisLine made =
                line(finding.probe, rule.no_severity, joined(rule.no, finding.seen), std::string(rule.means));
            if (finding.probe == Probe::kPartCopy && is_not_there(finding)) {
                made.severity = Severity::kLimit;
                made.means =
                    "what is appended to or changed within is sent again, and so are files above 5 GiB that "
                    "are renamed";
            }
            if (!rule.option.empty()) {
                made.options.push_back({std::string(rule.option), std::string(rule.option_value)});
            }
            return made;
        }
        case ProbeAnswer::kFailed:
            return line(finding.probe, rule.failed_severity, joined("could not be determined", finding.seen),
                        rule.failed_severity == Severity::kProblem ? means_if_missing(rule) : "");
        case ProbeAnswer::kNotAsked:
            break;
    }
    const std::string why =
        finding.because ? format("because of {}", name_of(*finding.because)) : escaped(finding.seen);
    DiagnosisLine made = line(finding.probe, Severity::kUnknown, joined("not asked", why));
    made.not_asked = why.empty() ? "for no reason" : why;
    return made;
}

DiagnosisLine of_endpoint(const Finding& finding, const StoreFacts& facts) {
    const std::string url = escaped(facts.url);
    if (finding.answer == ProbeAnswer::kYes) {
        return line(finding.probe, Severity::kGood,
                    format("{} answers{}", url, facts.server.empty() ? "" : format(" ({})", escaped(facts.server))));
    }
    DiagnosisLine made = line(finding.probe, Severity::kProblem, joined(url, finding.seen));
    if (finding.errno_value == EPROTO) {
        made.means =
            "the endpoint does not speak the expected protocol: check http:// or https://, and who signed its "
            "certificate";
        made.options = {{"endpoint-url", ""}, {"ca-bundle", ""}};
    } else if (finding.errno_value == EHOSTUNREACH && facts.virtual_host) {
        made.means = "the bucket is part of the host's name here, which not every store has";
        made.options = {{"endpoint-url", ""}, {"region", ""}, {"addressing-style", "path"}};
    } else {
        made.means =
            "check http:// or https://, host and port, the network, its proxies (https_proxy, no_proxy) and firewalls";
        made.options = {{"endpoint-url", ""}};
    }
    return made;
}

DiagnosisLine of_clock(const Finding& finding, const StoreFacts& facts) {
    if (!facts.clock_skew_seconds) {
        return by_rule(finding);
    }
    const double skew = *facts.clock_skew_seconds;
    const double off = std::abs(skew);
    if (off < kSameClock) {
        return line(finding.probe, Severity::kGood, "this machine's clock and the store's agree");
    }
    std::string found =
        format("the store's clock is {:.0f} s {} this machine's", off, skew > 0 ? "ahead of" : "behind");
    if (off < kBearableSkew) {
        return line(finding.probe, Severity::kNote, std::move(found), "this difference is harmless");
    }
    std::string means =
        "mounts judge by it which uploads and renames are abandoned: synchronise it (timedatectl set-ntp true)";
    if (off >= kRefusedSkew) {
        means += "; stores refuse what is signed so far off, so requests are signed with the store's time";
    }
    return line(finding.probe, Severity::kLimit, std::move(found), std::move(means));
}

DiagnosisLine of_credentials(const Finding& finding) {
    DiagnosisLine made = by_rule(finding);
    if (finding.answer != ProbeAnswer::kNo) {
        return made;
    }
    if (finding.s3_code.empty()) {
        made.found = escaped(finding.seen);
        made.means = "without credentials a store serves only public buckets: see ckptfs(1), CREDENTIALS";
        made.options = {{"profile", ""}, {"credentials-file", ""}, {"no-sign-request", ""}};
    } else if (finding.s3_code == "SignatureDoesNotMatch") {
        made.means =
            "the secret key does not match the access key: correct it at its source; or a proxy changes the requests";
        made.options = {{"profile", ""}, {"credentials-file", ""}};
    } else if (finding.s3_code == "AccessDenied") {
        made.means = "the policy of the user or the bucket allows none of it";
    } else {
        made.means =
            "they are not, or no longer, known to the store: correct or renew them where they come from, or choose "
            "others";
        made.options = {{"profile", ""}, {"credentials-file", ""}};
    }
    return made;
}

DiagnosisLine of_region(const Finding& finding, const StoreFacts& facts) {
    const std::string ours = escaped(facts.region);
    const std::string theirs = escaped(facts.bucket_region);
    if (finding.answer == ProbeAnswer::kNo) {
        DiagnosisLine made = by_rule(finding);
        if (!theirs.empty() && theirs != ours) {
            made.found = format("the bucket is in {}, and requests are signed for {}", theirs, ours);
            made.options = {{"region", facts.bucket_region}};
        }
        return made;
    }
    if (finding.answer != ProbeAnswer::kYes) {
        return by_rule(finding);
    }
    if (theirs.empty() || theirs == ours) {
        return line(finding.probe, Severity::kGood,
                    theirs.empty() ? format("{}; the store does not say its own", ours) : ours);
    }
    return line(finding.probe, Severity::kNote, format("requests are signed for {}; the store says {}", ours, theirs),
                "the store accepts them nevertheless");
}

DiagnosisLine of_bucket(const Finding& finding) {
    DiagnosisLine made = by_rule(finding);
    if (finding.answer == ProbeAnswer::kFailed && finding.s3_code.empty() && finding.http_status != 0) {
        made.means =
            "this is not how an S3 store answers: another server may listen there, or one that addresses buckets "
            "differently";
        made.options = {{"endpoint-url", ""}, {"addressing-style", ""}};
    }
    return made;
}

DiagnosisLine of_parts(const Finding& finding) {
    DiagnosisLine made = by_rule(finding);
    if (finding.answer == ProbeAnswer::kNo && finding.s3_code == "EntityTooSmall") {
        made.means = "the smallest part is larger here than the 5 MiB of Amazon S3: give a size that the store takes";
        made.options = {{"part-size", ""}};
    }
    return made;
}

DiagnosisLine of_latency(const Finding& finding, const StoreFacts& facts) {
    if (!facts.median_latency_ms) {
        return by_rule(finding);
    }
    std::string found = format("{:.1f} ms to an answer, {:.1f} ms at most", *facts.median_latency_ms,
                               facts.slowest_latency_ms.value_or(*facts.median_latency_ms));
    if (*facts.median_latency_ms < kFarAwayMs) {
        return line(finding.probe, Severity::kGood, std::move(found));
    }
    return line(finding.probe, Severity::kNote, std::move(found),
                "each name that is looked up costs one request; --metadata-ttl keeps what is known longer");
}

DiagnosisLine of_rates(const Finding& finding, const Rates& rates, int max_connections) {
    if (rates.one_connection <= 0) {
        return by_rule(finding);
    }
    std::string found = format("{} on one connection", megabytes(rates.one_connection));
    if (rates.connections < 2) {
        return line(finding.probe, Severity::kGood, std::move(found));
    }
    found += format(", {} on {}", megabytes(rates.all_connections), rates.connections);
    DiagnosisLine made = line(finding.probe, Severity::kGood, std::move(found));
    if (const auto advised = advised_connections(rates, max_connections)) {
        made.severity = Severity::kNote;
        made.means = "each connection adds as much as those before it: more of them may carry more";
        made.options = {{"max-connections", std::to_string(*advised)}};
    }
    return made;
}

DiagnosisLine diagnosed(const Finding& finding, const StoreFacts& facts) {
    if (finding.errno_value == ECANCELED) {
        return line(finding.probe, Severity::kUnknown, "could not be determined: interrupted");
    }
    switch (finding.probe) {
        case Probe::kEndpoint:
            return finding.answer == ProbeAnswer::kYes || finding.answer == ProbeAnswer::kNo
                       ? of_endpoint(finding, facts)
                       : by_rule(finding);
        case Probe::kClock:
            return of_clock(finding, facts);
        case Probe::kCredentials:
            return of_credentials(finding);
        case Probe::kRegion:
            return of_region(finding, facts);
        case Probe::kBucket:
            return of_bucket(finding);
        case Probe::kParts:
            return of_parts(finding);
        case Probe::kLatency:
            return of_latency(finding, facts);
        case Probe::kUpload:
            return of_rates(finding, facts.up, facts.max_connections);
        case Probe::kDownload:
            return of_rates(finding, facts.down, facts.max_connections);
        default:
            return by_rule(finding);
    }
}

// One line for all probes that were not asked, by their reasons.
std::string not_asked(const Diagnosis& diagnosis) {
    std::vector<std::pair<std::string, std::string>> names_by_reason;
    for (const DiagnosisLine& each : diagnosis.lines) {
        if (each.not_asked.empty()) {
            continue;
        }
        auto group = std::find_if(names_by_reason.begin(), names_by_reason.end(),
                                  [&](const auto& known) { return known.first == each.not_asked; });
        if (group == names_by_reason.end()) {
            group = names_by_reason.insert(group, {each.not_asked, ""});
        }
        group->second += format("{}{}", group->second.empty() ? "" : ", ", name_of(each.probe));
    }
    std::string text;
    for (const auto& [reason, names] : names_by_reason) {
        text += format("{}{}: {}", text.empty() ? "" : "; ", reason, names);
    }
    return text.empty() ? text : format("{:<6}{:<26}{}\n", mark_of(Severity::kUnknown), "not asked", text);
}

std::string conclusion(const Diagnosis& diagnosis) {
    if (diagnosis.interrupted) {
        return "interrupted: some checks did not run\n";
    }
    if (!diagnosis.usable()) {
        return "ckptfs cannot be used with these settings; see FAILS above\n";
    }
    std::string options;
    for (const SuggestedOption& each : diagnosis.options()) {
        options += " " + each.text();
    }
    return options.empty() ? "ckptfs can be used here\n" : format("ckptfs can be used here with{}\n", options);
}

}  // namespace

std::string_view mark_of(Severity severity) {
    constexpr auto kMarks = std::to_array<std::string_view>({"ok", "note", "set", "limit", "?", "FAILS"});
    return kMarks.at(static_cast<std::size_t>(severity));
}

std::string_view name_of(Severity severity) {
    constexpr auto kNames = std::to_array<std::string_view>({"ok", "note", "set", "limit", "unknown", "fails"});
    return kNames.at(static_cast<std::size_t>(severity));
}

bool SuggestedOption::is_complete() const {
    const OptionSpec* option = find_option(name);
    return option != nullptr && (option->is_switch() || !value.empty());
}

std::string SuggestedOption::text() const {
    if (!value.empty()) {
        return format("--{} {}", name, escaped(value));
    }
    const OptionSpec* option = find_option(name);
    return option == nullptr || option->is_switch() ? "--" + name : format("--{} {}", name, option->value_name);
}

bool Diagnosis::usable() const {
    return std::none_of(lines.begin(), lines.end(),
                        [](const DiagnosisLine& each) { return each.severity == Severity::kProblem; });
}

std::vector<SuggestedOption> Diagnosis::options() const {
    std::vector<SuggestedOption> all;
    for (const DiagnosisLine& each : lines) {
        for (const SuggestedOption& option : each.options) {
            const bool known = std::find(all.begin(), all.end(), option) != all.end();
            if (each.severity == Severity::kSet && option.is_complete() && !known) {
                all.push_back(option);
            }
        }
    }
    return all;
}

Diagnosis diagnose(const Findings& findings) {
    Diagnosis diagnosis{findings.source, findings.origin, findings.facts, {}, findings.interrupted};
    for (const Finding& each : findings.list) {
        diagnosis.lines.push_back(diagnosed(each, findings.facts));
    }
    std::stable_sort(diagnosis.lines.begin(), diagnosis.lines.end(),
                     [](const DiagnosisLine& a, const DiagnosisLine& b) { return a.probe < b.probe; });
    return diagnosis;
}

std::optional<int> advised_connections(const Rates& rates, int max_connections) {
    const bool grows =
        rates.connections > 1 && rates.all_connections > kStillGrows * rates.one_connection * rates.connections;
    if (!grows || rates.connections < max_connections || max_connections >= kMostConnections) {
        return std::nullopt;
    }
    return std::min(2 * max_connections, kMostConnections);
}

std::string describe(const Diagnosis& diagnosis) {
    std::string text = escaped(diagnosis.source) + "\n";
    if (!diagnosis.origin.empty()) {
        text += escaped(diagnosis.origin) + "\n";
    }
    Probe before = Probe::kFuse;
    for (const DiagnosisLine& each : diagnosis.lines) {
        if (!each.not_asked.empty()) {
            continue;
        }
        if (before < kFirstStoreProbe && each.probe >= kFirstStoreProbe) {
            text += "\n";
        }
        before = each.probe;
        text += format("{:<6}{:<26}{}\n", mark_of(each.severity), name_of(each.probe), each.found);
        if (!each.means.empty()) {
            text += format("{:<32}{}\n", "", each.means);
        }
        for (const SuggestedOption& option : each.options) {
            text += format("{:<32}-> {}\n", "", option.text());
        }
    }
    return text + not_asked(diagnosis) + "\n" + conclusion(diagnosis);
}

int exit_code(const Diagnosis& diagnosis) {
    return diagnosis.usable() && !diagnosis.interrupted ? 0 : 1;
}

}  // namespace ckptfs::doctor
