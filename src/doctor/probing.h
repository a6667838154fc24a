// SPDX-License-Identifier: Apache-2.0
// Inside the probes of `ckptfs doctor`: what they have in common, and what one leaves for the next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/probes.h"

namespace ckptfs::doctor {

// Whether the store has replied with a refusal. All else says nothing about what the store can do: missing rights, a
// clock that is wrong, a broken connection, no reply in time, a store that is overloaded or broken, a user who wants to
// stop.
[[nodiscard]] bool refused(const Error& error);
// kNo if the request was refused, or the reply is not one of S3; else kFailed.
[[nodiscard]] ProbeAnswer answer_of(const Error& error);
// Adds the finding of a request that has to be refused, and has failed: kYes if it was refused, else kFailed.
void add_refusal(Findings& findings, Probe probe, const Error& error);
// Who compares versions: the store by a condition, or ckptfs by the ETag of every reply, which does as well for reads.
enum class ComparedBy : std::uint8_t { kStore, kEither };
// Adds the finding of a request that must be refused with `errno_value`: kYes if it was, kNo if it was accepted or is
// not implemented, else kFailed.
template <class T>
void must_fail(Findings& findings, Probe probe, const Result<T>& result, int errno_value,
               ComparedBy by = ComparedBy::kStore) {
    if (result) {
        findings.add(probe, ProbeAnswer::kNo);
    } else if (result.error().errno_value == errno_value) {
        // Without an HTTP status it was not the store that refused it.
        const bool counts = by == ComparedBy::kEither || result.error().http_status != 0;
        findings.add(probe, counts ? ProbeAnswer::kYes : ProbeAnswer::kNo);
    } else {
        findings.add(probe, is_not_implemented(result.error()) ? ProbeAnswer::kNo : ProbeAnswer::kFailed,
                     result.error());
    }
}

// Whether the right for the request is missing.
[[nodiscard]] bool is_denied(const Error& error);

struct Probing {
    // Becomes `plain` once checksum headers turn out to be refused.
    PatientStore* store;
    PatientStore* plain;
    const ProbeRequest& request;
    Findings& findings;

    // The probe because of which nothing else can be found out.
    std::optional<Probe> blocked{};
    // The probes because of which nothing can be written, or nothing be uploaded in parts.
    std::optional<Probe> writes_blocked{};
    std::optional<Probe> uploads_blocked{};
    // An object below the prefix that may be read.
    std::string readable_key{};
    std::string readable_etag{};
    // Operations by which an object's metadata was lost: "a copy".
    std::vector<std::string> lost_metadata{};
    bool metadata_was_looked_at = false;
    bool etag_changed = false;
    // An object of several parts.
    std::string large_key{};
    std::uint64_t large_size = 0;

    [[nodiscard]] std::string key(std::string_view name) const { return request.place + std::string(name); }
    [[nodiscard]] bool uses_checksums() const { return store != plain && plain != nullptr; }
    // Adds kYes if it worked, kNo if the right is missing, else kFailed. True for kYes.
    template <class T>
    bool right(Probe probe, const Result<T>& result) {
        if (result) {
            findings.add(probe, ProbeAnswer::kYes);
            return true;
        }
        findings.add(probe, is_denied(result.error()) ? ProbeAnswer::kNo : ProbeAnswer::kFailed, result.error());
        return false;
    }
    // The right that is missing to read what was written.
    [[nodiscard]] std::optional<Probe> unreadable() const;
    void look_at_metadata(const ObjectInfo& object, const char* how);
    // The result of `attempt`. If that is refused with checksum headers but works without them, the store refuses the
    // headers: they are not sent any more.
    template <class Attempt>
    auto with_checksums_or_without(Attempt attempt) {
        auto result = attempt(*store);
        if (!result && uses_checksums() && refused(result.error())) {
            if (auto without = attempt(*plain)) {
                findings.add(Probe::kChecksumHeaders, ProbeAnswer::kNo, result.error());
                store = plain;
                return without;
            }
        }
        return result;
    }
};

// Metadata of everything that the probes write.
inline constexpr std::string_view kProbeMetadata = "ckptfs-doctor";
inline constexpr std::string_view kProbeMetadataValue = "kept";

[[nodiscard]] std::string probe_bytes(std::size_t size);
[[nodiscard]] PutRequest put_of(std::string key, std::string content);

void probe_objects(Probing& probing);
void probe_conditions(Probing& probing);
void probe_copies(Probing& probing);
void probe_listing(Probing& probing);
void probe_uploads(Probing& probing);
void probe_parts(Probing& probing);
void probe_part_copy(Probing& probing);
void probe_batch(Probing& probing);
void probe_latency(Probing& probing);
void probe_rates(Probing& probing);

// The number of connections to measure with: as many as it takes to see what the link carries, but so few that `bytes`
// has a piece for each, and that it takes seconds also if all of them share the rate of one. 1: a second measurement
// would say nothing more. Pure.
[[nodiscard]] int connections_to_measure(double rate_of_one, std::uint64_t bytes, std::uint64_t piece,
                                         int max_connections);

}  // namespace ckptfs::doctor
