// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "base/digest.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "ckptfs/store_limits.h"
#include "doctor/probing.h"
#include "tools/object_frames.h"

namespace ckptfs::doctor {
namespace {

// The smallest part that may precede others.
constexpr std::uint64_t kPiece = kMinPartSize;
constexpr Milliseconds kOneFor{1'000};
constexpr Milliseconds kAllFor{2'000};
constexpr double kLongestSeconds = 20;

double seconds_between(SteadyTime start, SteadyTime end) {
    return std::max(std::chrono::duration<double>(end - start).count(), 1e-6);
}

// What may still be moved; shared by all connections of one direction.
struct Budget {
    std::atomic<std::int64_t> left;

    explicit Budget(std::uint64_t bytes) : left(static_cast<std::int64_t>(bytes)) {}
    bool take() { return left.fetch_sub(static_cast<std::int64_t>(kPiece)) >= static_cast<std::int64_t>(kPiece); }
    [[nodiscard]] std::uint64_t rest() const { return static_cast<std::uint64_t>(std::max<std::int64_t>(left, 0)); }
};

// Moves pieces over so many connections until the time has passed or the bytes are used up. Returns bytes a second, 0
// for a failure. `move` returns the bytes that it moved, 0 if it failed.
template <class Move>
double measure(const PatientStore& store, int connections, Milliseconds time, Budget& budget, Move move) {
    std::atomic<std::uint64_t> moved = 0;
    std::atomic<bool> failed = false;
    const SteadyTime start = store.now();
    const SteadyTime end = start + time;
    run_on_threads("ckptfs-tool", connections, [&] {
        while (!failed && !store.interrupted() && store.now() < end && budget.take()) {
            const std::uint64_t bytes = move(end);
            moved += bytes;
            failed = failed || bytes == 0;
        }
    });
    return failed ? 0 : static_cast<double>(moved) / seconds_between(start, store.now());
}

template <class Move>
Rates measure_both(const PatientStore& store, const ProbeRequest& request, Move move) {
    // A quarter, because a fast link would use up everything on its first connection.
    Budget for_one(std::max(request.most_bytes / 4, kPiece));
    Rates rates;
    rates.one_connection = measure(store, 1, kOneFor, for_one, move);
    Budget budget(request.most_bytes - request.most_bytes / 4);
    rates.connections = connections_to_measure(rates.one_connection, budget.rest(), kPiece, request.max_connections);
    if (rates.connections > 1) {
        rates.all_connections = measure(store, rates.connections, kAllFor, budget, move);
    }
    if (rates.all_connections <= 0) {
        rates.connections = 1;
        rates.all_connections = rates.one_connection;
    }
    return rates;
}

class PartSender {
public:
    PartSender(PatientStore& store, UploadId upload) : store_(store), upload_(std::move(upload)) {}

    std::uint64_t operator()(SteadyTime /*end*/) {
        UploadPartRequest request;
        request.upload = upload_;
        request.part_number = ++numbers_;
        request.body = body_;
        request.crc32c = crc32c_;
        auto part = request.part_number > kMaxPartNumber ? failure(EFBIG, "") : store_.upload_part(std::move(request));
        if (!part) {
            return 0;
        }
        const MutexLock lock(mutex_);
        sent_.push_back(std::move(*part));
        return kPiece;
    }
    [[nodiscard]] CompleteRequest completion() const {
        CompleteRequest request;
        request.upload = upload_;
        const MutexLock lock(mutex_);
        request.parts = sent_;
        request.size = sent_.size() * kPiece;
        return request;
    }

private:
    PatientStore& store_;
    const UploadId upload_;
    const Payload body_ = Payload::from_string(probe_bytes(kPiece));
    const std::uint32_t crc32c_ = crc32c(body_);
    std::atomic<int> numbers_ = 0;
    mutable Mutex mutex_;
    std::vector<UploadedPart> sent_ GUARDED_BY(mutex_);
};

class RangeReader {
public:
    RangeReader(PatientStore& store, std::string key, std::uint64_t size)
        : store_(store), key_(std::move(key)), pieces_(size / kPiece) {}

    // Breaks off at `end`, and counts the bytes that came.
    std::uint64_t operator()(SteadyTime end) {
        const std::uint64_t piece = next_++ % pieces_;
        const auto came = std::make_shared<std::atomic<std::uint64_t>>(0);
        const auto in_time = [came, end, clock = &store_](ByteSpan bytes) {
            *came += bytes.size();
            return clock->now() < end;
        };
        static_cast<void>(store_.read(key_, ByteRange{piece * kPiece, kPiece, false}, in_time));
        return *came;
    }

private:
    PatientStore& store_;
    const std::string key_;
    const std::uint64_t pieces_;
    std::atomic<std::uint64_t> next_ = 0;
};

// What was sent becomes the object to read, if it is larger than the one there is.
void measure_up(Probing& probing) {
    Findings& findings = probing.findings;
    CreateUploadRequest create;
    create.key = probing.key("rates");
    const auto upload = probing.store->create_upload(std::move(create));
    if (!upload) {
        findings.add(Probe::kUpload, ProbeAnswer::kFailed, upload.error());
        return;
    }
    PartSender sender(*probing.store, *upload);
    findings.facts.up = measure_both(*probing.store, probing.request, std::ref(sender));
    if (findings.facts.up.one_connection <= 0) {
        findings.add(Probe::kUpload, ProbeAnswer::kFailed, "parts could not be sent");
    } else {
        findings.add(Probe::kUpload, ProbeAnswer::kYes);
    }
    CompleteRequest completion = sender.completion();
    const std::uint64_t size = completion.size;
    if (size > probing.large_size && probing.store->complete_upload(std::move(completion))) {
        probing.large_key = probing.key("rates");
        probing.large_size = size;
    }
}

}  // namespace

int connections_to_measure(double rate_of_one, std::uint64_t bytes, std::uint64_t piece, int max_connections) {
    const double pieces = static_cast<double>(bytes) / static_cast<double>(piece);
    const double in_time = kLongestSeconds * rate_of_one / static_cast<double>(piece);
    const double most = std::min({pieces, in_time, static_cast<double>(max_connections)});
    return std::max(1, static_cast<int>(most));
}

void probe_rates(Probing& probing) {
    Findings& findings = probing.findings;
    if (probing.request.most_bytes < kPiece) {
        findings.add(Probe::kUpload, ProbeAnswer::kNotAsked, "--probe-mib");
        findings.add(Probe::kDownload, ProbeAnswer::kNotAsked, "--probe-mib");
        return;
    }
    measure_up(probing);
    if (probing.large_size < kPiece) {
        findings.not_asked(Probe::kDownload, Probe::kUpload);
        return;
    }
    RangeReader reader(*probing.store, probing.large_key, probing.large_size);
    findings.facts.down = measure_both(*probing.store, probing.request, std::ref(reader));
    if (findings.facts.down.one_connection <= 0) {
        findings.add(Probe::kDownload, ProbeAnswer::kFailed, "nothing came");
    } else {
        findings.add(Probe::kDownload, ProbeAnswer::kYes);
    }
}

}  // namespace ckptfs::doctor
