// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/digest.h"
#include "base/text.h"
#include "ckptfs/store_limits.h"
#include "doctor/probing.h"

namespace ckptfs::doctor {
namespace {

constexpr std::size_t kPart = kMinPartSize;
constexpr std::size_t kMore = std::size_t{64} << 10;
constexpr std::size_t kTail = 1000;

struct PartToSend {
    int number;
    std::size_t size;
};

Result<UploadId> begin(PatientStore& store, const std::string& key) {
    CreateUploadRequest request;
    request.key = key;
    request.metadata[std::string(kProbeMetadata)] = kProbeMetadataValue;
    return store.create_upload(std::move(request));
}

Result<UploadedPart> send(PatientStore& store, const UploadId& upload, int number, std::string content) {
    UploadPartRequest request;
    request.upload = upload;
    request.part_number = number;
    request.body = Payload::from_string(std::move(content));
    request.crc32c = crc32c(request.body);
    return store.upload_part(std::move(request));
}

Result<PutResponse> complete(PatientStore& store, const UploadId& upload, std::vector<UploadedPart> parts,
                             bool if_none_match = false) {
    CompleteRequest request;
    request.upload = upload;
    for (const UploadedPart& each : parts) {
        request.size += each.size;
    }
    request.parts = std::move(parts);
    request.if_none_match = if_none_match;
    return store.complete_upload(std::move(request));
}

// Uploads an object in parts, sent in the order in which they are given.
Result<PutResponse> in_parts(PatientStore& store, const std::string& key, const std::vector<PartToSend>& parts) {
    const auto upload = begin(store, key);
    if (!upload) {
        return failure(upload.error());
    }
    std::vector<UploadedPart> sent;
    for (const auto& [number, size] : parts) {
        auto part = send(store, *upload, number, probe_bytes(size));
        if (!part) {
            static_cast<void>(store.abort_upload(*upload));
            return failure(std::move(part.error()));
        }
        sent.push_back(std::move(*part));
    }
    std::sort(sent.begin(), sent.end(),
              [](const UploadedPart& a, const UploadedPart& b) { return a.part_number < b.part_number; });
    auto done = complete(store, *upload, std::move(sent));
    if (!done) {
        static_cast<void>(store.abort_upload(*upload));
    }
    return done;
}

void add_unlisted(Probing& probing, Probe probe, const Error& error) {
    const bool no = is_denied(error) || refused(error);
    probing.findings.add(probe, no ? ProbeAnswer::kNo : ProbeAnswer::kFailed, error);
}

void probe_open_uploads(Probing& probing, const UploadId& upload) {
    const auto listed = probing.store->list_uploads(probing.request.place);
    if (!listed) {
        add_unlisted(probing, Probe::kListUploads, listed.error());
        return;
    }
    const bool there = std::any_of(listed->begin(), listed->end(),
                                   [&](const OpenUpload& each) { return each.upload.id == upload.id; });
    probing.findings.add(Probe::kListUploads, there ? ProbeAnswer::kYes : ProbeAnswer::kNo,
                         there ? "" : "one that is open is not listed");
}

// Lists the parts of an upload that has none.
void probe_listed_parts(Probing& probing, const UploadId& upload) {
    const auto listed = probing.store->list_parts(upload);
    if (!listed) {
        add_unlisted(probing, Probe::kListParts, listed.error());
        return;
    }
    probing.findings.add(Probe::kListParts, listed->empty() ? ProbeAnswer::kYes : ProbeAnswer::kNo,
                         listed->empty() ? "" : "parts are listed that were not sent");
}

void probe_checksum_of_part(Probing& probing, const UploadId& upload) {
    if (!probing.uses_checksums()) {
        probing.findings.add(Probe::kChecksumOfPart, ProbeAnswer::kNotAsked, "no checksums are sent");
        return;
    }
    UploadPartRequest wrong;
    wrong.upload = upload;
    wrong.part_number = 1;
    wrong.body = Payload::from_string("content");
    wrong.crc32c = crc32c(as_bytes("other content"));
    const auto taken = probing.store->upload_part(std::move(wrong));
    if (taken) {
        probing.findings.add(Probe::kChecksumOfPart, ProbeAnswer::kNo);
    } else {
        add_refusal(probing.findings, Probe::kChecksumOfPart, taken.error());
    }
}

// Begins an upload and ends it, as for a file that failed. False if that is not possible.
bool probe_ending(Probing& probing) {
    const auto upload =
        probing.with_checksums_or_without([&](PatientStore& store) { return begin(store, probing.key("ended")); });
    if (!upload) {
        probing.right(Probe::kMultipart, upload);
        probing.uploads_blocked = Probe::kMultipart;
        return false;
    }
    probe_listed_parts(probing, *upload);
    probe_checksum_of_part(probing, *upload);
    probe_open_uploads(probing, *upload);
    if (!probing.right(Probe::kAbort, probing.store->abort_upload(*upload))) {
        probing.uploads_blocked = Probe::kAbort;
        return false;
    }
    return true;
}

// Sends one part twice: the second must count.
void probe_part_again(Probing& probing) {
    const std::string key = probing.key("part-again");
    const auto upload = begin(*probing.store, key);
    const auto first = upload ? send(*probing.store, *upload, 1, "first") : failure(upload.error());
    if (!first) {
        probing.right(Probe::kMultipart, first);
        probing.uploads_blocked = Probe::kMultipart;
        return;
    }
    const auto second = send(*probing.store, *upload, 1, "second");
    const auto done = second ? complete(*probing.store, *upload, {*second}) : failure(second.error());
    const auto read = done ? probing.store->get(key, std::nullopt, "") : failure(done.error());
    if (const auto right = probing.unreadable(); done && right) {
        probing.findings.not_asked(Probe::kPartAgain, *right);
    } else if (read) {
        probing.findings.add(Probe::kPartAgain, read->bytes == "second" ? ProbeAnswer::kYes : ProbeAnswer::kNo);
        probing.look_at_metadata(read->response.object, "an upload in parts");
    } else {
        probing.findings.add(Probe::kPartAgain, answer_of(read.error()), read.error());
    }
    if (!done) {
        static_cast<void>(probing.store->abort_upload(*upload));
    }
}

// Checks whether an upload can be completed at all, with one part that was sent once, and its If-None-Match.
void probe_completion(Probing& probing) {
    const std::string key = probing.key("completed");
    const auto first = probing.with_checksums_or_without([&](PatientStore& store) {
        return in_parts(store, key, {{1, kTail}});
    });
    if (!probing.right(Probe::kMultipart, first)) {
        probing.uploads_blocked = Probe::kMultipart;
        return;
    }
    const auto seen = probing.store->head(key);
    if (seen && seen->etag != first->etag) {
        probing.etag_changed = true;
    }
    const auto upload = begin(*probing.store, key);
    const auto part = upload ? send(*probing.store, *upload, 1, "again") : failure(upload.error());
    const auto done = part ? complete(*probing.store, *upload, {*part}, true) : failure(part.error());
    must_fail(probing.findings, Probe::kIfNoneMatchOfUploads, done, EEXIST);
    if (upload && !done) {
        static_cast<void>(probing.store->abort_upload(*upload));
    }
}

}  // namespace

void probe_uploads(Probing& probing) {
    if (!probe_ending(probing)) {
        return;
    }
    probe_completion(probing);
    if (!probing.uploads_blocked) {
        probe_part_again(probing);
    }
}

// Sends parts as a mount does: in parallel, and so in any order. If that is refused, tries again with equal parts, and
// then in order, until it is clear what the store wants.
void probe_parts(Probing& probing) {
    Findings& findings = probing.findings;
    const std::string key = probing.key("parts");
    probing.large_key = key;
    const auto sent = [&](const std::vector<PartToSend>& parts) {
        auto made = in_parts(*probing.store, key, parts);
        for (const PartToSend& each : parts) {
            probing.large_size += made ? each.size : 0;
        }
        return made;
    };
    const auto any = sent({{3, kTail}, {2, kPart + kMore}, {1, kPart}});
    if (any) {
        findings.add(Probe::kParts, ProbeAnswer::kYes);
        findings.add(Probe::kUnequalParts, ProbeAnswer::kYes);
        findings.add(Probe::kPartOrder, ProbeAnswer::kYes);
    } else if (!refused(any.error())) {
        findings.add(Probe::kParts, ProbeAnswer::kFailed, any.error());
    } else if (sent({{3, kTail}, {2, kPart}, {1, kPart}})) {
        findings.add(Probe::kParts, ProbeAnswer::kYes);
        findings.add(Probe::kUnequalParts, ProbeAnswer::kNo, any.error());
        findings.add(Probe::kPartOrder, ProbeAnswer::kYes);
    } else if (sent({{1, kPart}, {2, kPart + kMore}, {3, kTail}})) {
        findings.add(Probe::kParts, ProbeAnswer::kYes);
        findings.add(Probe::kUnequalParts, ProbeAnswer::kYes);
        findings.add(Probe::kPartOrder, ProbeAnswer::kNo, any.error());
    } else {
        findings.add(Probe::kParts, ProbeAnswer::kNo, any.error());
    }
    findings.not_asked_from(Probe::kUnequalParts, Probe::kPartOrder, Probe::kParts);
}

namespace {

Result<ObjectInfo> copy_parts(PatientStore& store, const std::string& source, const std::string& key) {
    const auto upload = begin(store, key);
    if (!upload) {
        return failure(upload.error());
    }
    UploadPartCopyRequest request;
    request.upload = *upload;
    request.part_number = 1;
    request.source_key = source;
    request.range = ByteRange{0, kPart, false};
    const auto copied = store.upload_part_copy(std::move(request));
    const auto tail = copied ? send(store, *upload, 2, probe_bytes(kTail)) : failure(copied.error());
    const auto done = tail ? complete(store, *upload, {*copied, *tail}) : failure(tail.error());
    if (!done) {
        static_cast<void>(store.abort_upload(*upload));
        return failure(done.error());
    }
    return store.head(key);
}

}  // namespace

void probe_part_copy(Probing& probing) {
    Findings& findings = probing.findings;
    if (probing.large_size == 0) {
        findings.not_asked(Probe::kPartCopy, Probe::kParts);
        return;
    }
    if (const auto right = probing.unreadable()) {
        findings.not_asked(Probe::kPartCopy, *right);
        return;
    }
    const auto copied = probing.with_checksums_or_without(
        [&](PatientStore& store) { return copy_parts(store, probing.large_key, probing.key("part-copy")); });
    if (!copied) {
        findings.add(Probe::kPartCopy, answer_of(copied.error()), copied.error());
        return;
    }
    const bool whole = copied->size == kPart + kTail;
    findings.add(Probe::kPartCopy, whole ? ProbeAnswer::kYes : ProbeAnswer::kNo,
                 whole ? "" : "the copied part is not in the object");
}

}  // namespace ckptfs::doctor
