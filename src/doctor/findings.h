// SPDX-License-Identifier: Apache-2.0
// What `ckptfs doctor` asks, and the answers, before they are interpreted.
//
// Plain values; safe to copy between threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckptfs/status.h"

namespace ckptfs::doctor {

enum class Probe : std::uint8_t {
    // This machine.
    kFuse,
    kMountPoint,
    kStaging,
    kOpenFiles,
    kKilledWriters,
    kControlSockets,
    kStateDirectory,
    kCacheDirectory,
    kPassthrough,
    // The way to the bucket.
    kEndpoint,
    kClock,
    kCredentials,
    kRegion,
    kBucket,
    // Rights.
    kList,
    kPut,
    kHead,
    kGet,
    kDelete,
    kMultipart,
    kAbort,
    kListUploads,
    kListParts,
    // What the store does with what it is sent.
    kChecksumHeaders,
    kChecksumOfPut,
    kChecksumOfPart,
    kMetadata,
    kEtag,
    kListAfterWrite,
    kListOrder,
    kKeyNames,
    kRanges,
    kIfMatch,
    kIfNoneMatch,
    kIfNoneMatchOfUploads,
    kIfMatchOfPut,
    kCopy,
    kCopyConditions,
    kPartCopy,
    kParts,
    kUnequalParts,
    kPartOrder,
    kPartAgain,
    kDeleteBatch,
    kDeleteConditions,
    // How fast it is.
    kLatency,
    kUpload,
    kDownload,
    kSlowDown,
    // What the probes left.
    kCleanup,
};
inline constexpr Probe kFirstStoreProbe = Probe::kEndpoint;
inline constexpr Probe kLastProbe = Probe::kCleanup;

enum class ProbeAnswer : std::uint8_t {
    // As Amazon S3 does it; or, for this machine, as a mount needs it.
    kYes,
    kNo,
    // Unknown: the error says why.
    kFailed,
    // Another probe has to succeed first, or it was not wanted.
    kNotAsked,
};

struct Finding {
    Probe probe = Probe::kEndpoint;
    ProbeAnswer answer = ProbeAnswer::kNotAsked;
    // What was seen: the store's words, a path, a number. May hold what came from outside, unescaped.
    std::string seen;
    std::string s3_code;
    int errno_value = 0;
    // 0: the store has not answered.
    int http_status = 0;
    // For kNotAsked: the probe that has to succeed first.
    std::optional<Probe> because;
};

// Bytes a second in one direction; 0 if not measured.
struct Rates {
    double one_connection = 0;
    double all_connections = 0;
    int connections = 0;
};

struct StoreFacts {
    // URL of the bucket, as requests have it.
    std::string url;
    bool virtual_host = false;
    // The Server header; empty if there is none.
    std::string server;
    // The region that requests are signed for, and the one that the store names.
    std::string region;
    std::string bucket_region;
    // How far the store's clock is ahead of this machine's.
    std::optional<double> clock_skew_seconds;
    std::optional<double> median_latency_ms;
    std::optional<double> slowest_latency_ms;
    Rates up;
    Rates down;
    int max_connections = 0;
};

struct Findings {
    std::string source;
    // Where the source and the options were found; empty if they were typed.
    std::string origin;
    std::vector<Finding> list;
    StoreFacts facts;
    // Not everything was asked: the user interrupted it, or the time ran out.
    bool interrupted = false;

    void add(Probe probe, ProbeAnswer answer, std::string seen = {});
    void add(Probe probe, ProbeAnswer answer, const Error& error);
    void not_asked(Probe probe, Probe because);
    // Adds kNotAsked for those of these probes about which nothing is known yet.
    void not_asked_from(Probe first, Probe last, Probe because);

    [[nodiscard]] const Finding* find(Probe probe) const;
    [[nodiscard]] bool is(Probe probe, ProbeAnswer answer) const;
};

}  // namespace ckptfs::doctor
