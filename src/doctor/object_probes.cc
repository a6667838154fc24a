// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/digest.h"
#include "base/text.h"
#include "doctor/probing.h"

namespace ckptfs::doctor {
namespace {

constexpr const char* kSuffix = "the last bytes of an object";
constexpr int kLatencies = 12;

struct RangeToRead {
    ByteRange range;
    // The range that is not answered as on S3, for a person.
    const char* what;
};

// kNo if a reply or a refusal shows that the store does not support ranges.
void probe_ranges(Probing& probing, const std::string& key, const std::string& content) {
    constexpr std::array<RangeToRead, 4> kAsked{
        {{{0, 1, false}, ""}, {{1000, 2000, false}, ""}, {{4000, 1000, false}, ""}, {{0, 100, true}, kSuffix}}};
    for (const auto& [range, what] : kAsked) {
        const auto read = probing.store->get(key, range, "");
        if (!read && !refused(read.error())) {
            probing.findings.add(Probe::kRanges, ProbeAnswer::kFailed, read.error());
            return;
        }
        const std::string wanted =
            content.substr(range.suffix ? content.size() - range.length : range.offset, range.length);
        if (!read || read->bytes != wanted || read->response.object.size != content.size()) {
            probing.findings.add(Probe::kRanges, ProbeAnswer::kNo, what);
            return;
        }
    }
    probing.findings.add(Probe::kRanges, ProbeAnswer::kYes);
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
        add_refusal(probing.findings, Probe::kChecksumOfPut, taken.error());
    }
}

bool is_plain(const std::string& name) {
    return std::all_of(name.begin(), name.end(),
                       [](unsigned char each) { return each < 0x80 && std::isalnum(each) != 0; });
}

std::string missing_of(const std::vector<std::string>& names, const std::vector<std::string>& listed) {
    std::string missing;
    for (const std::string& name : names) {
        if (std::find(listed.begin(), listed.end(), name) == listed.end()) {
            missing += (missing.empty() ? "" : "  ") + name;
        }
    }
    return missing;
}

}  // namespace

void probe_objects(Probing& probing) {
    const std::string key = probing.key("object");
    probe_checksum_of_put(probing);
    if (const auto right = probing.unreadable()) {
        probing.findings.not_asked(Probe::kRanges, *right);
        probing.findings.not_asked(Probe::kIfMatch, *right);
        return;
    }
    probe_ranges(probing, key, probe_bytes(4096));
    must_fail(probing.findings, Probe::kIfMatch, probing.store->get(key, std::nullopt, kWrongETag), ESTALE,
              ComparedBy::kEither);
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
    pinned.if_match = kWrongETag;
    must_fail(probing.findings, Probe::kIfMatchOfPut, probing.store->put(std::move(pinned)), ESTALE);
}

namespace {

void probe_copy_conditions(Probing& probing, const CopyRequest& copy) {
    CopyRequest pinned = copy;
    pinned.source_if_match = kWrongETag;
    CopyRequest kept = copy;
    kept.if_none_match = true;
    Findings asked;
    must_fail(asked, Probe::kCopyConditions, probing.store->copy(std::move(pinned)), ESTALE);
    must_fail(asked, Probe::kCopyConditions, probing.store->copy(std::move(kept)), EEXIST);
    const ProbeAnswer source = asked.list.front().answer;
    const ProbeAnswer target = asked.list.back().answer;
    if (source == ProbeAnswer::kNo || target == ProbeAnswer::kNo) {
        probing.findings.add(Probe::kCopyConditions, ProbeAnswer::kNo,
                             source == target             ? ""
                             : target == ProbeAnswer::kNo ? "that of the destination (If-None-Match)"
                                                          : "that of the source (x-amz-copy-source-if-match)");
    } else {
        probing.findings.list.push_back(source == ProbeAnswer::kYes ? asked.list.back() : asked.list.front());
    }
}

}  // namespace

void probe_copies(Probing& probing) {
    Findings& findings = probing.findings;
    if (const auto right = probing.unreadable()) {
        findings.not_asked(Probe::kCopy, *right);
        findings.not_asked(Probe::kCopyConditions, *right);
        return;
    }
    CopyRequest copy;
    copy.source_key = probing.key("object");
    copy.key = probing.key("copy");
    const auto seen =
        probing.store->copy(copy).and_then([&](const PutResponse&) { return probing.store->head(copy.key); });
    if (!seen) {
        findings.add(Probe::kCopy, answer_of(seen.error()), seen.error());
        findings.not_asked(Probe::kCopyConditions, Probe::kCopy);
        return;
    }
    const bool whole = seen->size == 4096;
    findings.add(Probe::kCopy, whole ? ProbeAnswer::kYes : ProbeAnswer::kNo,
                 whole ? "" : "the copy is not what was copied");
    probing.look_at_metadata(*seen, "a copy");
    probe_copy_conditions(probing, copy);
}

namespace {

// The names that the list of what was written has to hold, and what became of the others.
struct Names {
    std::vector<std::string> written;
    // Names that the store does not accept.
    std::string refused;
    // The error for a name of which it is unknown whether it was written.
    std::optional<Error> lost;
};

Names write_names(Probing& probing, const std::string& place, const std::vector<std::string>& names, bool plain) {
    Names made;
    for (const std::string& name : names) {
        if (is_plain(name) != plain) {
            continue;
        }
        const auto put = probing.store->put(put_of(place + name, "x"));
        if (put) {
            made.written.push_back(name);
        } else if (refused(put.error())) {
            made.refused += (made.refused.empty() ? "" : "  ") + name;
        } else {
            made.lost = put.error();
        }
    }
    return made;
}

}  // namespace

void probe_listing(Probing& probing) {
    Findings& findings = probing.findings;
    const std::string place = probing.key("names/");
    // In the order of their bytes.
    const std::vector<std::string> names{"Zebra", "a b+c%20&=", "a!b",      "apple",
                                         "b/c",   "z",          "\xC3\xA4", "\xE6\x97\xA5\xE6\x9C\xAC"};
    const Names plain = write_names(probing, place, names, true);
    const Names others = write_names(probing, place, names, false);
    ListRequest request;
    request.prefix = place;
    const auto page = probing.store->list(std::move(request));
    if (!page) {
        for (const Probe probe : {Probe::kListAfterWrite, Probe::kListOrder, Probe::kKeyNames}) {
            if (findings.is(Probe::kList, ProbeAnswer::kYes)) {
                findings.add(probe, ProbeAnswer::kFailed, page.error());
            } else {
                findings.not_asked(probe, Probe::kList);
            }
        }
        return;
    }
    std::vector<std::string> listed;
    for (const ObjectInfo& each : page->objects) {
        listed.push_back(each.key.substr(std::min(place.size(), each.key.size())));
    }
    const std::string late = missing_of(plain.written, listed);
    const std::string changed = others.refused + missing_of(others.written, listed);
    if (plain.written.empty() && plain.lost) {
        findings.add(Probe::kListAfterWrite, ProbeAnswer::kFailed, *plain.lost);
    } else {
        findings.add(Probe::kListAfterWrite, late.empty() ? ProbeAnswer::kYes : ProbeAnswer::kNo, late);
    }
    // Each of these names is of another kind, so that one that is lost leaves the answer open.
    if (changed.empty() && others.lost) {
        findings.add(Probe::kKeyNames, ProbeAnswer::kFailed, *others.lost);
    } else {
        findings.add(Probe::kKeyNames, changed.empty() ? ProbeAnswer::kYes : ProbeAnswer::kNo, changed);
    }
    findings.add(Probe::kListOrder,
                 std::is_sorted(listed.begin(), listed.end()) ? ProbeAnswer::kYes : ProbeAnswer::kNo);
}

namespace {

// Asked for an object that exists.
void probe_delete_conditions(Probing& probing, const std::string& key) {
    Findings& findings = probing.findings;
    const auto alone = probing.store->remove_pinned({key, kWrongETag});
    const auto batch = probing.store->remove_many({{key, kWrongETag}});
    if (!batch) {
        findings.add(Probe::kDeleteConditions, answer_of(batch.error()), batch.error());
        return;
    }
    if (!alone && alone.error().errno_value != ESTALE) {
        findings.add(Probe::kDeleteConditions, answer_of(alone.error()), alone.error());
        return;
    }
    const bool pinned = !alone && batch->size() == 1 && batch->front().error.errno_value == ESTALE;
    findings.add(Probe::kDeleteConditions, pinned ? ProbeAnswer::kYes : ProbeAnswer::kNo,
                 pinned ? "" : (alone ? "DeleteObject ignores If-Match" : "DeleteObjects ignores ETag"));
}

}  // namespace

void probe_batch(Probing& probing) {
    Findings& findings = probing.findings;
    const std::vector<std::string> keys{probing.key("batch 1"), probing.key("batch&2")};
    for (const std::string& key : keys) {
        static_cast<void>(probing.store->put(put_of(key, "x")));
    }
    const auto removed = probing.store->remove_many({keys.begin(), keys.end()});
    if (!removed) {
        findings.add(Probe::kDeleteBatch, answer_of(removed.error()), removed.error());
        findings.not_asked(Probe::kDeleteConditions, Probe::kDeleteBatch);
        return;
    }
    if (!removed->empty()) {
        const Error& error = removed->front().error;
        findings.add(Probe::kDeleteBatch, is_denied(error) ? ProbeAnswer::kFailed : ProbeAnswer::kNo, error);
        findings.not_asked(Probe::kDeleteConditions, Probe::kDeleteBatch);
        return;
    }
    const auto still = probing.store->head(keys.back());
    findings.add(Probe::kDeleteBatch, still ? ProbeAnswer::kNo : ProbeAnswer::kYes,
                 still ? "keys that it says are removed are there" : "");
    if (const auto made = probing.store->put(put_of(keys.front(), "x")); made) {
        probe_delete_conditions(probing, keys.front());
    } else {
        findings.add(Probe::kDeleteConditions, answer_of(made.error()), made.error());
    }
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

}  // namespace ckptfs::doctor
