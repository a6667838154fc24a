// SPDX-License-Identifier: Apache-2.0
#include "doctor/probes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <initializer_list>
#include <utility>

#include "base/text.h"
#include "doctor/probing.h"

namespace ckptfs::doctor {
namespace {

enum class Needs : std::uint8_t { kNothing, kWriting, kUploads };

struct Step {
    void (*run)(Probing&);
    Needs needs;
    // First and last of the probes that it answers.
    Probe first;
    Probe last;
};

bool is_one_of(const std::string& code, std::initializer_list<std::string_view> codes) {
    return std::find(codes.begin(), codes.end(), code) != codes.end();
}

bool is_about_identity(const Error& error) {
    return is_one_of(error.s3_code,
                     {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "ExpiredTokenException",
                      "TokenRefreshRequired", "InvalidToken", "AccountProblem", "NotSignedUp"});
}

// Whether this machine's clock is wrong.
bool is_about_time(const Error& error) {
    return is_one_of(error.s3_code, {"RequestTimeTooSkewed", "RequestExpired"});
}

bool is_about_region(const Error& error) {
    return error.http_status == 301 ||
           is_one_of(error.s3_code, {"PermanentRedirect", "AuthorizationHeaderMalformed", "TemporaryRedirect",
                                     "IllegalLocationConstraintException"});
}

// The first signed request: its reply tells problems of the credentials, the region and the bucket apart.
void probe_bucket(Probing& probing) {
    ListRequest request;
    request.prefix = probing.request.prefix;
    request.max_keys = 10;
    const auto listed = probing.store->list(std::move(request));
    Findings& findings = probing.findings;
    const bool may_be_region = !listed && is_about_region(listed.error());
    if (!listed && (is_about_identity(listed.error()) || may_be_region)) {
        const Probe cause = may_be_region ? Probe::kRegion : Probe::kCredentials;
        Error refused = listed.error();
        if (cause == Probe::kCredentials && !probing.request.credentials.empty()) {
            refused.message += format("; they come from {}", probing.request.credentials);
        }
        findings.add(cause, ProbeAnswer::kNo, refused);
        probing.blocked = cause;
        return;
    }
    if (!listed && is_one_of(listed.error().s3_code, {"NoSuchBucket", "InvalidBucketName"})) {
        findings.add(Probe::kBucket, ProbeAnswer::kNo, listed.error());
        probing.blocked = Probe::kBucket;
        return;
    }
    if (!listed && is_about_time(listed.error())) {
        findings.add(Probe::kCredentials, ProbeAnswer::kFailed, listed.error());
        probing.blocked = Probe::kCredentials;
        return;
    }
    if (!listed && listed.error().errno_value != EACCES) {
        findings.add(Probe::kBucket, ProbeAnswer::kFailed, listed.error());
        probing.blocked = Probe::kBucket;
        return;
    }
    findings.add(Probe::kCredentials, ProbeAnswer::kYes, probing.request.credentials);
    findings.add(Probe::kRegion, ProbeAnswer::kYes);
    findings.add(Probe::kBucket, ProbeAnswer::kYes);
    probing.right(Probe::kList, listed);
    if (listed) {
        const auto file = std::find_if(listed->objects.begin(), listed->objects.end(),
                                       [](const ObjectInfo& each) { return each.size > 0; });
        probing.readable_key = file == listed->objects.end() ? "" : file->key;
    }
}

// Writes the first object, and checks that objects can be removed.
void probe_writing(Probing& probing) {
    const std::string key = probing.key("object");
    const auto written = probing.with_checksums_or_without(
        [&](PatientStore& store) { return store.put(put_of(key, probe_bytes(4096))); });
    if (!probing.right(Probe::kPut, written)) {
        probing.writes_blocked = Probe::kPut;
        return;
    }
    probing.readable_key = key;
    probing.readable_etag = written->etag;
    // Without the right to delete, no more objects are written.
    const std::string gone = probing.key("removed");
    static_cast<void>(probing.store->put(put_of(gone, "removed")));
    if (!probing.right(Probe::kDelete, probing.store->remove(gone))) {
        probing.writes_blocked = Probe::kDelete;
    }
}

void probe_reading(Probing& probing) {
    Findings& findings = probing.findings;
    if (probing.readable_key.empty()) {
        const std::string why = "there is no object to try it on";
        findings.add(Probe::kHead, ProbeAnswer::kNotAsked, why);
        findings.add(Probe::kGet, ProbeAnswer::kNotAsked, why);
        return;
    }
    const auto seen = probing.store->head(probing.readable_key);
    probing.right(Probe::kHead, seen);
    const auto read = probing.store->get(probing.readable_key, ByteRange{0, 1, false}, "");
    probing.right(Probe::kGet, read);
    if (!probing.writes_blocked && probing.readable_key == probing.key("object") && seen) {
        probing.look_at_metadata(*seen, "a write");
        probing.etag_changed = seen->etag != probing.readable_etag;
    }
}

constexpr auto kSteps = std::to_array<Step>({
    {probe_bucket, Needs::kNothing, Probe::kCredentials, Probe::kList},
    {probe_writing, Needs::kWriting, Probe::kPut, Probe::kPut},
    {probe_reading, Needs::kNothing, Probe::kHead, Probe::kGet},
    {probe_latency, Needs::kNothing, Probe::kLatency, Probe::kLatency},
    {probe_objects, Needs::kWriting, Probe::kRanges, Probe::kIfMatch},
    {probe_conditions, Needs::kWriting, Probe::kIfNoneMatch, Probe::kIfMatchOfPut},
    {probe_copies, Needs::kWriting, Probe::kCopy, Probe::kCopyConditions},
    {probe_listing, Needs::kWriting, Probe::kListAfterWrite, Probe::kKeyNames},
    {probe_batch, Needs::kWriting, Probe::kDeleteBatch, Probe::kDeleteConditions},
    {probe_uploads, Needs::kWriting, Probe::kMultipart, Probe::kListParts},
    {probe_parts, Needs::kUploads, Probe::kParts, Probe::kPartOrder},
    {probe_part_copy, Needs::kUploads, Probe::kPartCopy, Probe::kPartCopy},
    {probe_rates, Needs::kUploads, Probe::kUpload, Probe::kDownload},
});

// The probe because of which a step cannot run; absent if it can.
std::optional<Probe> in_the_way(const Probing& probing, Needs needs) {
    if (probing.blocked || needs == Needs::kNothing) {
        return probing.blocked;
    }
    return probing.writes_blocked || needs == Needs::kWriting ? probing.writes_blocked : probing.uploads_blocked;
}

void conclude(Probing& probing) {
    Findings& findings = probing.findings;
    if (probing.metadata_was_looked_at) {
        std::string ways;
        for (const std::string& each : probing.lost_metadata) {
            ways += (ways.empty() ? "by " : ", by ") + each;
        }
        findings.add(Probe::kEtag, probing.etag_changed ? ProbeAnswer::kNo : ProbeAnswer::kYes);
        findings.add(Probe::kMetadata, ways.empty() ? ProbeAnswer::kYes : ProbeAnswer::kNo, ways);
    }
    if (findings.find(Probe::kChecksumHeaders) == nullptr && findings.is(Probe::kPut, ProbeAnswer::kYes)) {
        if (probing.uses_checksums()) {
            findings.add(Probe::kChecksumHeaders, ProbeAnswer::kYes);
        } else {
            findings.add(Probe::kChecksumHeaders, ProbeAnswer::kNotAsked, "--checksum none");
        }
    }
}

// The unique name of the place need not be repeated in every message.
std::string with_short_names(std::string text, const std::string& place) {
    for (std::size_t at = text.find(place); at != std::string::npos; at = text.find(place)) {
        text.replace(at, place.size(), "…/");
    }
    return text;
}

void fill_gaps(Probing& probing) {
    const std::string why = probing.store->interrupted() ? "interrupted"
                            : probing.request.read_only  ? "--read-only"
                                                         : "what it needs is not there";
    for (auto each = static_cast<int>(Probe::kCredentials); each < static_cast<int>(Probe::kSlowDown); ++each) {
        const auto probe = static_cast<Probe>(each);
        if (probing.findings.find(probe) != nullptr) {
            continue;
        }
        const auto cause = probing.blocked          ? probing.blocked
                           : probing.writes_blocked ? probing.writes_blocked
                                                    : probing.uploads_blocked;
        if (cause && !probing.store->interrupted()) {
            probing.findings.not_asked(probe, *cause);
        } else {
            probing.findings.add(probe, ProbeAnswer::kNotAsked, why);
        }
    }
}

}  // namespace

std::optional<Probe> Probing::unreadable() const {
    for (const Probe right : {Probe::kGet, Probe::kHead}) {
        if (findings.is(right, ProbeAnswer::kNo)) {
            return right;
        }
    }
    return std::nullopt;
}

void Probing::look_at_metadata(const ObjectInfo& object, const char* how) {
    metadata_was_looked_at = true;
    const auto found = object.metadata.find(std::string(kProbeMetadata));
    if (found == object.metadata.end() || found->second != kProbeMetadataValue) {
        lost_metadata.emplace_back(how);
    }
}

std::string probe_bytes(std::size_t size) {
    std::string bytes(size, '\0');
    std::uint64_t state = 0x9E3779B97F4A7C15U;
    for (char& each : bytes) {
        // xorshift64: nothing on the way shrinks it.
        state ^= state << 13U;
        state ^= state >> 7U;
        state ^= state << 17U;
        each = static_cast<char>(state & 0xFFU);
    }
    return bytes;
}

PutRequest put_of(std::string key, std::string content) {
    PutRequest put;
    put.key = std::move(key);
    put.body = Payload::from_string(std::move(content));
    put.metadata[std::string(kProbeMetadata)] = kProbeMetadataValue;
    return put;
}

bool refused(const Error& error) {
    // Request Timeout, Too Many Requests (RFC 9110, 6585): about this attempt.
    const bool about_attempt = error.http_status == 408 || error.http_status == 429;
    const bool told = error.http_status >= 400 && error.http_status < 500 && !about_attempt;
    return (told || error.http_status == 501) && error.http_status != 403 && error.errno_value != EACCES;
}

ProbeAnswer answer_of(const Error& error) {
    // A reply that reports success, but is not one of S3.
    const bool something_else = error.http_status == 200 && error.s3_code.empty();
    return refused(error) || something_else ? ProbeAnswer::kNo : ProbeAnswer::kFailed;
}

void add_refusal(Findings& findings, Probe probe, const Error& error) {
    if (refused(error)) {
        findings.add(probe, ProbeAnswer::kYes);
    } else {
        findings.add(probe, ProbeAnswer::kFailed, error);
    }
}

bool is_denied(const Error& error) {
    return error.errno_value == EACCES && !is_about_time(error);
}

void probe_store(PatientStore& store, PatientStore* plain, const ProbeRequest& request, Findings& findings) {
    Probing probing{&store, plain, request, findings};
    for (const Step& step : kSteps) {
        if (store.interrupted()) {
            break;
        }
        if (request.read_only && step.needs != Needs::kNothing) {
            continue;
        }
        if (const auto cause = in_the_way(probing, step.needs)) {
            findings.not_asked_from(step.first, step.last, *cause);
            continue;
        }
        if (request.asking) {
            request.asking(step.first);
        }
        step.run(probing);
    }
    conclude(probing);
    fill_gaps(probing);
    for (Finding& each : findings.list) {
        each.seen = with_short_names(std::move(each.seen), request.place);
    }
}

void clean_up(PatientStore& store, const Litter& litter, const std::string& place, Findings& findings) {
    std::vector<UploadId> uploads = litter.uploads();
    const auto open = store.list_uploads(place);
    if (open) {
        for (const OpenUpload& each : *open) {
            uploads.push_back(each.upload);
        }
    }
    std::string left;
    bool answers = true;
    const auto tidy = [&](const std::string& what, const std::function<Status()>& remove) {
        const Status removed = answers ? remove() : failure(EIO, "");
        if (!removed) {
            left += (left.empty() ? "" : ", ") + what;
            answers = removed.error().http_status != 0;
        }
    };
    for (const UploadId& each : uploads) {
        tidy("an upload of " + each.key, [&] { return store.abort_upload(each); });
    }
    for (const std::string& key : litter.keys()) {
        // One by one: a batch may be what does not work here.
        tidy(key, [&] { return store.remove(key); });
    }
    ListRequest request;
    request.prefix = place;
    const auto listed = answers ? store.list(std::move(request)) : failure(EIO, "");
    if (listed && left.empty()) {
        for (const ObjectInfo& each : listed->objects) {
            tidy(each.key, [&] { return store.remove(each.key); });
        }
    }
    // An upload whose ID never came is known from the list only.
    if (!open || findings.is(Probe::kListUploads, ProbeAnswer::kNo)) {
        for (const std::string& key : litter.unanswered()) {
            left += (left.empty() ? "" : ", ") + ("perhaps an upload of " + key) +
                    " (not listed here: end it at the store, or by a lifecycle rule for incomplete uploads)";
        }
    }
    findings.add(Probe::kCleanup, left.empty() ? ProbeAnswer::kYes : ProbeAnswer::kNo, left);
}

}  // namespace ckptfs::doctor
