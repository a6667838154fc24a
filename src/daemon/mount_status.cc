// SPDX-License-Identifier: Apache-2.0
#include "daemon/mount_status.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

std::string duration_text(std::int64_t seconds) {
    constexpr std::int64_t kMinute = 60;
    constexpr std::int64_t kHour = 60 * kMinute;
    constexpr std::int64_t kDay = 24 * kHour;
    if (seconds < kMinute) {
        return format("{} s", seconds);
    }
    if (seconds < kHour) {
        return format("{} min", seconds / kMinute);
    }
    return seconds < kDay ? format("{} h {} min", seconds / kHour, seconds % kHour / kMinute)
                          : format("{} d {} h", seconds / kDay, seconds % kDay / kHour);
}

std::string left_by(const UnsentActivity& unsent) {
    return format("{} before this one left changes on the disk, for the next to send (unmount, and mount again)",
                  counted(unsent.places_left, "mount"));
}

std::string verdict(const MountStatus& status) {
    if (status.safe_to_stop()) {
        return "safe to stop: yes";
    }
    std::string why;
    if (status.files_unsaved > 0) {
        why = counted(status.files_unsaved, "file") + " not saved yet";
    }
    if (!status.renames.empty()) {
        why += (why.empty() ? "" : ", ") + counted(status.renames.size(), "rename") + " under way";
    }
    if (status.removals > 0) {
        why += (why.empty() ? "" : ", ") + counted(status.removals, "removal") + " under way";
    }
    if (status.failures_untold > 0) {
        why += (why.empty() ? "" : ", ") + counted(status.failures_untold, "failed file") +
               " not recorded for other mounts yet";
    }
    if (status.unsent.changes > 0) {
        why += (why.empty() ? "" : ", ") + counted(status.unsent.changes, "change") + " on the disk only";
    }
    if (status.unsent.places_left > 0) {
        why += (why.empty() ? "" : ", ") + left_by(status.unsent);
    }
    return "safe to stop: no, " + why;
}

std::string file_line(const FileInFlight& file) {
    if (!file.failure.empty()) {
        return format("  {}: failed: {}", escaped(file.key), escaped(file.failure));
    }
    return format("  {}: {} MiB written, {} MiB in the store, {} in flight{}", escaped(file.key), mebibytes(file.size),
                  mebibytes(file.bytes_in_store), counted(static_cast<std::uint64_t>(file.parts_in_flight), "part"),
                  file.unsaved ? "" : ", saved");
}

// These files are not visible, and may have been reported nowhere else.
std::string not_published(const MountStatus& status) {
    std::string text;
    if (status.files_failed > 0) {
        text += format("failed since it was mounted: {}\n", counted(status.files_failed, "file"));
    }
    if (status.files_held_back > 0) {
        text += format("not published, because their writer was killed: {}\n", counted(status.files_held_back, "file"));
    }
    if (status.files_unwritten > 0) {
        text += format("still failed (not written again or removed; commit markers are held back): {}\n",
                       counted(status.files_unwritten, "file"));
    }
    for (const UnwrittenFile& file : status.unwritten) {
        text += format("  {}: {}\n", escaped(file.key), escaped(file.reason));
    }
    if (status.unwritten.size() < status.files_unwritten) {
        text += format("  and {} that failed before\n", status.files_unwritten - status.unwritten.size());
    }
    return text;
}

std::string traffic_line(const MountStatus& status) {
    const Traffic& rates = status.rates;
    return format("now: {} MiB/s written, {} read; {} sent to the store, {} received\n", mebibytes(rates.written),
                  mebibytes(rates.read), mebibytes(rates.sent), mebibytes(rates.received));
}

std::string store_line(const StoreActivity& store) {
    std::string text =
        format("store: {} in flight (limit {}), {} waiting; {} in total, {} retried",
               counted(store.in_flight, "request"), store.limit, store.waiting, store.requests, store.retries);
    if (store.slow_downs > 0) {
        text += format(", {} answered with slow down", store.slow_downs);
    }
    if (store.late_reads > 0) {
        text += format(", {} asked again", counted(store.late_reads, "late read"));
    }
    return text + "\n";
}

std::string cache_text(const MountStatus& status) {
    const std::uint64_t reads = status.cache_hits + status.cache_misses;
    return reads == 0 ? ""
                      : format("; {} % of {} came from it", status.cache_hits * 100 / reads, counted(reads, "read"));
}

std::string disk_line(const DiskActivity& disk) {
    if (disk.directory.empty()) {
        return "";
    }
    const DiskCacheStatistics& counts = disk.counts;
    std::string text = disk.is_all
                           ? format("disk: {} MiB in {} are all there is (--cache-only); {} MiB read from it",
                                    mebibytes(counts.bytes_held), escaped(disk.directory), mebibytes(counts.bytes_read))
                           : format("disk: {} of {} MiB in {}; {} MiB read from it, {} written",
                                    mebibytes(counts.bytes_held), mebibytes(disk.size), escaped(disk.directory),
                                    mebibytes(counts.bytes_read), mebibytes(counts.bytes_written));
    if (disk.opens_passed_through > 0) {
        text += format(", {} read by the kernel itself", counted(disk.opens_passed_through, "open file"));
    }
    if (disk.files_to_keep > 0) {
        text += format(", {} to be kept yet", counted(disk.files_to_keep, "file"));
    }
    if (counts.frames_left_out > 0) {
        text += format(", {} MiB left out because it is too slow", counts.frames_left_out);
    }
    if (counts.frames_damaged > 0) {
        text += format(", {} MiB damaged", counts.frames_damaged);
    }
    return text +
           (counts.failure.empty() ? "" : format("; not all of it is used for now: {}", escaped(counts.failure))) +
           "\n";
}

std::string unsent_lines(const UnsentActivity& unsent) {
    if (!unsent.acknowledges) {
        return "";
    }
    std::string text = format("acknowledged by the disk: {}, {} of {} MiB, not in the bucket yet",
                              counted(unsent.changes, "change"), mebibytes(unsent.bytes), mebibytes(unsent.limit));
    if (unsent.changes > 0) {
        text += format(", the oldest for {}", duration_text(unsent.seconds));
    }
    if (unsent.waiting > 0) {
        text += format("; {} for room", counted(unsent.waiting, "call") + (unsent.waiting == 1 ? " waits" : " wait"));
    }
    text += "\n";
    if (unsent.given_up > 0) {
        text +=
            format("  {} given up, not in the bucket (write again): {}{}\n", counted(unsent.given_up, "commit marker"),
                   escaped(unsent.given_up_key), unsent.given_up > 1 ? ", ..." : "");
    }
    return unsent.failure.empty() ? text
                                  : text + format("  {}: cannot be sent, and holds back what comes after it: {}\n",
                                                  escaped(unsent.failing_key), escaped(unsent.failure));
}

std::string read_line(const FileBeingRead& read) {
    return format("  {}: {} of {} MiB\n", escaped(read.key), mebibytes(read.position), mebibytes(read.size));
}

template <class Files>
void keep_largest(Files& files) {
    std::stable_sort(files.begin(), files.end(),
                     [](const auto& one, const auto& other) { return one.size > other.size; });
    files.resize(std::min(files.size(), MountStatus::kMostFiles));
}

}  // namespace

void set_files(MountStatus& status, const fs::FileSystem& fs) {
    for (fs::UploadProgress& upload : fs.uploads()) {
        const WriterProgress& progress = upload.progress;
        status.files.push_back(FileInFlight{std::move(upload.key), progress.size, progress.bytes_acknowledged,
                                            progress.bytes_in_store, progress.parts_in_flight, upload.unsaved,
                                            upload.failed ? upload.failed->message : ""});
    }
    status.files_open = status.files.size();
    status.files_unsaved = static_cast<std::uint64_t>(
        std::count_if(status.files.begin(), status.files.end(), [](const FileInFlight& file) { return file.unsaved; }));
    keep_largest(status.files);
    const fs::FileStatistics statistics = fs.statistics();
    status.disk.opens_passed_through = statistics.opens_passed_through;
    status.files_failed = statistics.files_failed;
    status.files_held_back = statistics.files_held_back;
    status.names_known = statistics.names_known;
    status.removals = statistics.removals_under_way;
    status.failures_untold = statistics.failures_untold;
    fs::UnwrittenFiles unwritten = fs.unwritten(MountStatus::kMostFiles);
    status.files_unwritten = unwritten.count;
    for (fs::FailedRecord& record : unwritten.latest) {
        status.unwritten.push_back({std::move(record.key), std::move(record.reason)});
    }
    status.renames = fs.renames();
    for (fs::ReadProgress& read : fs.reads()) {
        status.reads.push_back(FileBeingRead{std::move(read.key), read.size, read.position});
    }
    status.files_read = status.reads.size();
    keep_largest(status.reads);
}

void set_store(MountStatus& status, const s3::S3Statistics& store) {
    status.store = {store.requests,
                    store.retries,
                    store.slow_downs,
                    store.late_reads,
                    store.in_flight,
                    store.waiting,
                    static_cast<std::uint64_t>(store.concurrency_limit)};
}

void set_cache(MountStatus& status, const ReadStatistics& cache) {
    status.cache_hits = cache.hits;
    status.cache_misses = cache.misses;
}

void set_disk(MountStatus& status, const DiskCache& disk, std::uint64_t files_to_keep, bool is_all) {
    status.disk.directory = disk.config().directory;
    status.disk.size = disk.config().size;
    status.disk.counts = disk.statistics();
    status.disk.files_to_keep = files_to_keep;
    status.disk.is_all = is_all;
}

void set_unsent(MountStatus& status, const UnsentStatus& unsent, std::uint64_t limit, WallTime now) {
    status.unsent = {
        true,
        unsent.changes,
        unsent.bytes,
        limit,
        std::max<std::int64_t>(
            0, std::chrono::duration_cast<std::chrono::seconds>(now - unsent.oldest.value_or(now)).count()),
        unsent.waiting,
        unsent.last_acknowledged,
        unsent.all_sent_up_to,
        unsent.failing_key,
        unsent.failure,
        unsent.given_up,
        unsent.given_up_key,
        unsent.places,
        unsent.changes_elsewhere,
        unsent.places_left};
}

AcknowledgedByNow::AcknowledgedByNow(const MountStatus& status)
    : pid_(status.pid),
      places_(status.unsent.places),
      last_(status.unsent.last_acknowledged),
      has_removals_(status.removals > 0),
      was_sent_(!has_removals_ && (!status.unsent.acknowledges ||
                                   (status.unsent.all_sent_up_to >= last_ && status.unsent.changes_elsewhere == 0))) {}

Result<bool> AcknowledgedByNow::is_sent(const MountStatus& status) {
    if (was_sent_) {
        return true;
    }
    const UnsentActivity& unsent = status.unsent;
    const auto is_there = [&unsent](const std::string& place) {
        return std::find(unsent.places.begin(), unsent.places.end(), place) != unsent.places.end();
    };
    if (!std::all_of(places_.begin(), places_.end(), is_there)) {
        return failure(EIO, status.mount_point +
                                " was mounted again meanwhile, and this mount does not send all that the one before "
                                "has left on the disk: wait again once all mounts of this node are there");
    }
    if (!places_.empty() && unsent.places.front() != places_.front()) {
        return unsent.changes_elsewhere == 0;
    }
    if (status.pid != pid_) {
        *this = AcknowledgedByNow(status);
    }
    if (unsent.changes_elsewhere == 0 && places_.size() > 1) {
        places_.resize(1);
    }
    if (has_removals_ && status.removals > 0) {
        return false;
    }
    if (has_removals_) {
        *this = AcknowledgedByNow(status);
    }
    return !unsent.acknowledges || (unsent.all_sent_up_to >= last_ && unsent.changes_elsewhere == 0);
}

void set_memory(MountStatus& status, const PoolUsage& usage) {
    status.memory_total = usage.total_buffers * BufferPool::kBufferSize;
    status.memory_resident = usage.touched_buffers * BufferPool::kBufferSize;
    status.memory_used = (usage.total_buffers - usage.free_buffers) * BufferPool::kBufferSize;
    status.memory_for_reading = usage.in_use[static_cast<std::size_t>(MemoryUse::kRead)] * BufferPool::kBufferSize;
}

std::string status_text(const MountStatus& status) {
    std::string text = format("{} at {}: ckptfs {}, pid {}, mounted for {}{}\n", escaped(status.source),
                              escaped(status.mount_point), escaped(status.version), status.pid,
                              duration_text(status.seconds_mounted), status.draining ? ", unmounting" : "");
    text += verdict(status) + "\n" + not_published(status);
    text += traffic_line(status) + store_line(status.store);
    text += format("memory: {} of {} MiB ({} resident), {} MiB of it read ahead or cached{}\n",
                   mebibytes(status.memory_used), mebibytes(status.memory_total), mebibytes(status.memory_resident),
                   mebibytes(status.memory_for_reading), cache_text(status));
    text += disk_line(status.disk) + unsent_lines(status.unsent);
    if (status.files_open > 0) {
        text += format("open for writing: {}\n", counted(status.files_open, "file"));
    }
    for (const FileInFlight& file : status.files) {
        text += file_line(file) + "\n";
    }
    if (status.files.size() < status.files_open) {
        text += format("  and {} smaller\n", status.files_open - status.files.size());
    }
    if (status.files_read > 0) {
        text += format("being read: {}\n", counted(status.files_read, "file"));
    }
    for (const FileBeingRead& read : status.reads) {
        text += read_line(read);
    }
    if (status.reads.size() < status.files_read) {
        text += format("  and {} smaller\n", status.files_read - status.reads.size());
    }
    for (const std::string& name : status.renames) {
        text += format("renaming: {}\n", escaped(name));
    }
    if (!status.problems.empty()) {
        text += "last problems:\n";
        for (const std::string& problem : status.problems) {
            text += "  " + escaped(problem) + "\n";
        }
    }
    return text;
}

}  // namespace ckptfs
