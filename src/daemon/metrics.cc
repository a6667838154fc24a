// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics.h"

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>
#include <prometheus/metric_type.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <sstream>
#include <utility>

#include "base/text.h"

namespace ckptfs {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;
using prometheus::MetricType;

class Families {
public:
    explicit Families(std::string mount_point) : mount_{"mount", std::move(mount_point)} {}

    // Begins a family, to which the samples that follow belong.
    void begin(MetricType type, const char* name, const char* help) {
        families_.push_back({std::string("ckptfs_") + name, help, type, {}});
    }
    void add(double value, Labels labels = {}) {
        prometheus::ClientMetric& metric = sample(std::move(labels));
        (families_.back().type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    }
    void add(std::uint64_t value, Labels labels = {}) { add(static_cast<double>(value), std::move(labels)); }
    prometheus::ClientMetric& sample(Labels labels) {
        labels.insert(labels.begin(), mount_);
        families_.back().metric.emplace_back().label = std::move(labels);
        return families_.back().metric.back();
    }

    template <class Number>
    void counter(const char* name, const char* help, Number value) {
        begin(MetricType::Counter, name, help);
        add(value);
    }
    template <class Number>
    void gauge(const char* name, const char* help, Number value) {
        begin(MetricType::Gauge, name, help);
        add(value);
    }

    [[nodiscard]] std::vector<prometheus::MetricFamily> take() { return std::move(families_); }

private:
    const prometheus::ClientMetric::Label mount_;
    std::vector<prometheus::MetricFamily> families_;
};

void add_mount(Families& families, const MountFigures& figures) {
    const MountStatus& status = figures.status;
    families.begin(MetricType::Gauge, "mount_info", "A mount, with its source and version; always 1.");
    families.add(1.0, {{"source", status.source}, {"version", status.version}});
    families.gauge("start_time_seconds", "When the mount was made, since the epoch.",
                   static_cast<double>(figures.start_time_seconds));
    families.gauge("safe_to_stop", "Whether nothing would be lost if the daemon ended now.",
                   status.safe_to_stop() ? 1.0 : 0.0);
    families.gauge("draining", "Whether the mount waits for its last uploads before it ends.",
                   status.draining ? 1.0 : 0.0);
    families.gauge("worker_busy_seconds", "How long the FUSE worker that is busy longest has had its request.",
                   std::chrono::duration<double>(figures.worker_busy).count());
    families.begin(MetricType::Counter, "log_messages_total", "Lines logged, by level.");
    families.add(figures.log.errors, {{"level", "error"}});
    families.add(figures.log.warnings, {{"level", "warning"}});
}

void add_files(Families& families, const MountFigures& figures) {
    const fs::FileStatistics& files = figures.files;
    families.counter("written_bytes_total", "Bytes that programs wrote.", files.bytes_written);
    families.counter("read_bytes_total", "Bytes that programs read.", files.bytes_read);
    families.counter("files_committed_total", "Files, or new versions of them, made visible.", files.files_committed);
    families.counter("committed_bytes_total", "Sizes of the files committed.", files.bytes_committed);
    families.counter("stored_bytes_total", "Sizes of the files committed, as they are stored.", files.bytes_stored);
    families.counter("files_failed_total", "Files that could not be written.", files.files_failed);
    families.counter("files_held_back_total", "Files not published because their writer was killed.",
                     files.files_held_back);
    families.gauge("failures_untold", "Failed files of which other mounts are not told yet.", files.failures_untold);
    families.gauge("names_known", "Files and directories remembered, about 1 KB each.", files.names_known);
    families.gauge("files_open_for_writing", "Files open for writing.", figures.status.files_open);
    families.gauge("files_unsaved", "Files of which something is in no commit yet.", figures.status.files_unsaved);
    families.gauge("files_being_read", "Files read in the last seconds.", figures.status.files_read);
    families.gauge("renames_in_progress", "Renames under way.",
                   static_cast<std::uint64_t>(figures.status.renames.size()));
}

void add_reading(Families& families, const ReadStatistics& reading) {
    families.counter("read_cache_hits_total", "Reads answered from memory.", reading.hits);
    families.counter("read_cache_misses_total", "Reads that had to wait for the store.", reading.misses);
    families.counter("read_fetched_bytes_total", "Bytes of files fetched.", reading.bytes_fetched);
    families.counter("read_wasted_bytes_total", "Bytes fetched ahead and given up unread.", reading.bytes_wasted);
}

void add_disk(Families& families, const DiskActivity& disk) {
    if (disk.directory.empty()) {
        return;
    }
    families.counter("disk_read_bytes_total", "Bytes of files read from --cache-dir.", disk.counts.bytes_read);
    families.counter("disk_written_bytes_total", "Bytes of files kept in --cache-dir.", disk.counts.bytes_written);
    families.counter("disk_passed_through_total", "Opens of files that the kernel reads from --cache-dir itself.",
                     disk.opens_passed_through);
    families.counter("disk_left_out_total", "MiB not kept because the disk is too slow.", disk.counts.frames_left_out);
    families.counter("disk_damaged_total", "MiB found damaged on the disk, and fetched again.",
                     disk.counts.frames_damaged);
    families.gauge("disk_held_bytes", "What the files in --cache-dir take, of all mounts.", disk.counts.bytes_held);
    families.gauge("disk_to_keep", "Files written that are not in --cache-dir yet.", disk.files_to_keep);
    families.gauge("disk_limit_bytes", "What the files in --cache-dir may take.", disk.size);
    families.gauge("disk_usable", "Whether the disk is used; 0 after it failed, or was full.",
                   disk.counts.failure.empty() ? 1.0 : 0.0);
}

void add_unsent(Families& families, const UnsentActivity& unsent) {
    if (!unsent.acknowledges) {
        return;
    }
    families.gauge("unsent_changes", "Changes that the disk has acknowledged and that are not in the bucket.",
                   unsent.changes);
    families.gauge("unsent_bytes", "What changes that are not in the bucket take on the disk.", unsent.bytes);
    families.gauge("unsent_limit_bytes",
                   "What changes that are not in the bucket may take before close waits for the store.", unsent.limit);
    families.gauge("unsent_oldest_seconds", "For how long the oldest change that is not in the bucket has waited.",
                   static_cast<double>(unsent.seconds));
    families.gauge("unsent_failing", "Whether a change cannot be sent, and holds back those behind it.",
                   unsent.failure.empty() ? 0.0 : 1.0);
    families.gauge("unsent_given_up", "Commit markers acknowledged, not made, and not written again.", unsent.given_up);
    families.gauge("unsent_places_left", "Earlier mounts that left changes on the disk, for the next mount to send.",
                   unsent.places_left);
}

void add_memory(Families& families, const PoolUsage& memory) {
    static constexpr std::array<const char*, kMemoryUses> kNames{"receive", "write", "read", "commit", "encode"};
    families.gauge("memory_limit_bytes", "Memory for data.",
                   static_cast<std::uint64_t>(memory.total_buffers * BufferPool::kBufferSize));
    families.gauge("memory_resident_bytes", "Memory for data that is taken from the system, used or not.",
                   static_cast<std::uint64_t>(memory.touched_buffers * BufferPool::kBufferSize));
    families.begin(MetricType::Gauge, "memory_used_bytes", "Memory that holds data, by use.");
    for (std::size_t use = 0; use < kMemoryUses; ++use) {
        families.add(static_cast<std::uint64_t>(memory.in_use[use] * BufferPool::kBufferSize), {{"use", kNames[use]}});
    }
}

void add_store(Families& families, const MountFigures& figures) {
    const s3::S3Statistics& store = figures.store;
    families.counter("s3_sent_bytes_total", "Bytes of request bodies sent.", figures.http.bytes_sent);
    families.counter("s3_received_bytes_total", "Bytes of response bodies received.", figures.http.bytes_received);
    families.counter("s3_connections_opened_total", "Connections opened.", figures.http.connections_opened);
    families.counter("s3_retries_total", "Attempts that repeated a request.", store.retries);
    families.counter("s3_slow_downs_total", "Answers that asked for fewer requests.", store.slow_downs);
    families.counter("s3_late_reads_total", "Reads that were asked again on another connection because they were late.",
                     store.late_reads);
    families.gauge("s3_requests_in_flight", "Requests sent and not answered yet.", store.in_flight);
    families.gauge("s3_requests_waiting", "Requests that wait to be sent, or to be sent again.", store.waiting);
    families.gauge("s3_requests_limit", "Requests in flight at most, as the store bears it now.",
                   static_cast<double>(store.concurrency_limit));
}

void add_histogram(prometheus::ClientMetric::Histogram& histogram, const s3::OperationStatistics& operation) {
    for (std::size_t bucket = 0; bucket < s3::OperationStatistics::kBounds.size(); ++bucket) {
        histogram.sample_count += operation.durations[bucket];
        histogram.bucket.push_back({histogram.sample_count, s3::OperationStatistics::kBounds[bucket]});
    }
    histogram.sample_count += operation.durations.back();
    histogram.bucket.push_back({histogram.sample_count, std::numeric_limits<double>::infinity()});
    histogram.sample_sum = operation.total_seconds;
}

void add_operations(Families& families, const std::vector<s3::OperationStatistics>& operations) {
    families.begin(MetricType::Counter, "s3_requests_total", "Attempts, by operation and how they ended.");
    for (const s3::OperationStatistics& operation : operations) {
        families.add(operation.succeeded, {{"operation", operation.operation}, {"result", "ok"}});
        for (const auto& [error, count] : operation.failed) {
            families.add(count, {{"operation", operation.operation}, {"result", error}});
        }
    }
    families.begin(MetricType::Histogram, "s3_request_duration_seconds", "How long attempts took, by operation.");
    for (const s3::OperationStatistics& operation : operations) {
        add_histogram(families.sample({{"operation", operation.operation}}).histogram, operation);
    }
}

}  // namespace

std::vector<prometheus::MetricFamily> metric_families(const MountFigures& figures) {
    Families families(figures.status.mount_point);
    add_mount(families, figures);
    add_files(families, figures);
    add_reading(families, figures.reading);
    add_disk(families, figures.status.disk);
    add_unsent(families, figures.status.unsent);
    add_memory(families, figures.memory);
    add_store(families, figures);
    add_operations(families, figures.operations);
    return families.take();
}

std::string metrics_text(const MountFigures& figures) {
    std::ostringstream text;
    prometheus::TextSerializer().Serialize(text, metric_families(figures));
    return text.str();
}

}  // namespace ckptfs
