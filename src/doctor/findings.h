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
    // As Amazon S3 does it; or, of this machine, as a mount needs it.
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
    // Of kNotAsked.
    std::optional<Probe> because;
};

// Bytes a second, each way; 0 where it was not measured.
struct Rates {
    double one_connection = 0;
    double all_connections = 0;
    int connections = 0;
};

struct StoreFacts {
    // Of the bucket, as it is asked.
    std::string url;
    bool virtual_host = false;
    // As its header has it; empty where it does not say.
    std::string server;
    // What requests are signed for, and what the store says it is.
    std::string region;
    std::string bucket_region;
    // By which the store is ahead of this machine.
    std::optional<double> clock_skew_seconds;
    std::optional<double> median_latency_ms;
    std::optional<double> slowest_latency_ms;
    Rates up;
    Rates down;
    int max_connections = 0;
};

struct Findings {
    std::string source;
    // Where it and the options were found; empty where they were typed.
    std::string origin;
    std::vector<Finding> list;
    StoreFacts facts;
    // Not everything was asked: the user interrupted it, or the time ran out.
    bool interrupted = false;

    void add(Probe probe, ProbeAnswer answer, std::string seen = {});
    void add(Probe probe, ProbeAnswer answer, const Error& error);
    void not_asked(Probe probe, Probe because);
    // Of these, those that nothing is known about yet.
    void not_asked_from(Probe first, Probe last, Probe because);

    [[nodiscard]] const Finding* find(Probe probe) const;
    [[nodiscard]] bool is(Probe probe, ProbeAnswer answer) const;
};

}  // namespace ckptfs::doctor
