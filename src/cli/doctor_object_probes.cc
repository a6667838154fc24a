// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/digest.h"
#include "base/text.h"
#include "cli/doctor_probing.h"

namespace ckptfs {
namespace {

// No object has it.
constexpr const char* kOtherEtag = "\"00000000000000000000000000000000\"";
constexpr int kLatencies = 12;

// What must be refused, and with which errno: yes where it is, no where it is taken or not known.
template <class T>
void must_fail(Findings& findings, Probe probe, const Result<T>& result, int errno_value) {
    if (result) {
        findings.add(probe, ProbeAnswer::kNo);
    } else if (result.error().errno_value == errno_value) {
        findings.add(probe, ProbeAnswer::kYes);
    } else {
        findings.add(probe, result.error().s3_code == "NotImplemented" ? ProbeAnswer::kNo : ProbeAnswer::kFailed,
                     result.error());
    }
}

bool reads_as(Probing& probing, const std::string& key, ByteRange range, const std::string& content) {
    const auto read = probing.store->get(key, range, "");
    return read && read->bytes == content && read->response.object.size == 4096;
}

void probe_checksum_of_put(Probing& probing) {
    if (!probing.uses_checksums()) {
        probing.findings.add(Probe::kChecksumOfPut, ProbeAnswer::kNotAsked, "no checksums are sent");
        return;
    }
    PutRequest wrong = put_of(probing.key("wrong-checksum"), "content");
    wrong.crc32c = crc32c(as_bytes("other content"));
    const auto taken = probing.store->put(std::move(wrong));
    if (taken) {
        probing.findings.add(Probe::kChecksumOfPut, ProbeAnswer::kNo);
    } else {
        const Error& error = taken.error();
        const bool told = error.http_status != 0 && error.errno_value != EACCES;
        probing.findings.add(Probe::kChecksumOfPut, told ? ProbeAnswer::kYes : ProbeAnswer::kFailed,
                             told ? std::string() : error.message);
    }
}

bool is_plain(const std::string& name) {
    return std::all_of(name.begin(), name.end(),
                       [](unsigned char each) { return each < 0x80 && std::isalnum(each) != 0; });
}

std::string missing_of(const std::vector<std::string>& names, const std::vector<std::string>& listed, bool plain) {
    std::string missing;
    for (const std::string& name : names) {
        if (is_plain(name) == plain && std::find(listed.begin(), listed.end(), name) == listed.end()) {
            missing += (missing.empty() ? "" : "  ") + name;
        }
    }
    return missing;
}

}  // namespace

void probe_objects(Probing& probing) {
    const std::string key = probing.key("object");
    const std::string content = probe_bytes(4096);
    const bool ranges = reads_as(probing, key, {0, 1, false}, content.substr(0, 1)) &&
                        reads_as(probing, key, {1000, 2000, false}, content.substr(1000, 2000)) &&
                        reads_as(probing, key, {4000, 1000, false}, content.substr(4000));
    const bool suffix = reads_as(probing, key, {0, 100, true}, content.substr(3996));
    probing.findings.add(Probe::kRanges, ranges && suffix ? ProbeAnswer::kYes : ProbeAnswer::kNo,
                         ranges && !suffix ? "the last bytes of an object" : "");
    must_fail(probing.findings, Probe::kIfMatch, probing.store->get(key, std::nullopt, kOtherEtag), ESTALE);
    probe_checksum_of_put(probing);
}

void probe_conditions(Probing& probing) {
    const std::string key = probing.key("condition");
    if (const auto first = probing.store->put(put_of(key, "first")); !first) {
        probing.findings.add(Probe::kIfNoneMatch, ProbeAnswer::kFailed, first.error());
        return;
    }
    PutRequest again = put_of(key, "second");
    again.if_none_match = true;
    must_fail(probing.findings, Probe::kIfNoneMatch, probing.store->put(std::move(again)), EEXIST);
    PutRequest pinned = put_of(key, "third");
    pinned.if_match = kOtherEtag;
    must_fail(probing.findings, Probe::kIfMatchOfPut, probing.store->put(std::move(pinned)), ESTALE);
}

void probe_copies(Probing& probing) {
    Findings& findings = probing.findings;
    CopyRequest copy;
    copy.source_key = probing.key("object");
    copy.key = probing.key("copy");
    const auto copied = probing.store->copy(copy);
    if (!copied) {
        findings.add(Probe::kCopy, copied.error().http_status == 0 ? ProbeAnswer::kFailed : ProbeAnswer::kNo,
                     copied.error());
        findings.not_asked(Probe::kCopyConditions, Probe::kCopy);
        return;
    }
    const auto seen = probing.store->head(copy.key);
    const bool whole = seen && seen->size == 4096;
    findings.add(Probe::kCopy, whole ? ProbeAnswer::kYes : ProbeAnswer::kNo,
                 whole ? "" : "the copy is not what was copied");
    if (seen) {
        probing.look_at_metadata(*seen, "a copy");
    }
    CopyRequest pinned = copy;
    pinned.source_if_match = kOtherEtag;
    CopyRequest kept = copy;
    kept.if_none_match = true;
    Findings asked;
    must_fail(asked, Probe::kCopyConditions, probing.store->copy(std::move(pinned)), ESTALE);
    must_fail(asked, Probe::kCopyConditions, probing.store->copy(std::move(kept)), EEXIST);
    const bool both = std::all_of(asked.list.begin(), asked.list.end(),
                                  [](const Finding& each) { return each.answer == ProbeAnswer::kYes; });
    const bool neither = std::all_of(asked.list.begin(), asked.list.end(),
                                     [](const Finding& each) { return each.answer == ProbeAnswer::kNo; });
    findings.add(Probe::kCopyConditions, both ? ProbeAnswer::kYes : ProbeAnswer::kNo,
                 both || neither                                  ? ""
                 : asked.list.front().answer == ProbeAnswer::kYes ? "that of the destination (If-None-Match)"
                                                                  : "that of the source (x-amz-copy-source-if-match)");
}

void probe_listing(Probing& probing) {
    Findings& findings = probing.findings;
    const std::string place = probing.key("names/");
    // In the order of their bytes.
    const std::vector<std::string> names{"Zebra", "a b+c%20&=", "a!b",      "apple",
                                         "b/c",   "z",          "\xC3\xA4", "\xE6\x97\xA5\xE6\x9C\xAC"};
    for (const std::string& name : names) {
        static_cast<void>(probing.store->put(put_of(place + name, "x")));
    }
    ListRequest request;
    request.prefix = place;
    const auto page = probing.store->list(std::move(request));
    if (!page) {
        for (const Probe probe : {Probe::kListAfterWrite, Probe::kListOrder, Probe::kKeyNames}) {
            findings.not_asked(probe, Probe::kList);
        }
        return;
    }
    std::vector<std::string> listed;
    for (const ObjectInfo& each : page->objects) {
        listed.push_back(each.key.substr(std::min(place.size(), each.key.size())));
    }
    const std::string late = missing_of(names, listed, true);
    const std::string changed = missing_of(names, listed, false);
    findings.add(Probe::kListAfterWrite, late.empty() ? ProbeAnswer::kYes : ProbeAnswer::kNo, late);
    findings.add(Probe::kKeyNames, changed.empty() ? ProbeAnswer::kYes : ProbeAnswer::kNo, changed);
    findings.add(Probe::kListOrder,
                 std::is_sorted(listed.begin(), listed.end()) ? ProbeAnswer::kYes : ProbeAnswer::kNo);
}

void probe_batch(Probing& probing) {
    const std::vector<std::string> keys{probing.key("batch 1"), probing.key("batch&2")};
    for (const std::string& key : keys) {
        static_cast<void>(probing.store->put(put_of(key, "x")));
    }
    const auto removed = probing.store->remove_many(keys);
    if (!removed) {
        probing.findings.add(Probe::kDeleteBatch,
                             removed.error().http_status == 0 ? ProbeAnswer::kFailed : ProbeAnswer::kNo,
                             removed.error());
        return;
    }
    if (!removed->empty()) {
        probing.findings.add(Probe::kDeleteBatch, ProbeAnswer::kNo, removed->front().error);
        return;
    }
    const auto still = probing.store->head(keys.back());
    probing.findings.add(Probe::kDeleteBatch, still ? ProbeAnswer::kNo : ProbeAnswer::kYes,
                         still ? "keys that it says are removed are there" : "");
}

void probe_latency(Probing& probing) {
    std::vector<double> times;
    for (int i = 0; i < kLatencies && !probing.readable_key.empty(); ++i) {
        const SteadyTime start = probing.store->now();
        if (!probing.store->get(probing.readable_key, ByteRange{0, 1, false}, "")) {
            break;
        }
        times.push_back(std::chrono::duration<double, std::milli>(probing.store->now() - start).count());
    }
    if (times.size() < kLatencies) {
        probing.findings.add(Probe::kLatency, ProbeAnswer::kNotAsked, "there is no object that can be read");
        return;
    }
    std::sort(times.begin(), times.end());
    probing.findings.facts.median_latency_ms = times[times.size() / 2];
    probing.findings.facts.slowest_latency_ms = times.back();
    probing.findings.add(Probe::kLatency, ProbeAnswer::kYes);
}

}  // namespace ckptfs
