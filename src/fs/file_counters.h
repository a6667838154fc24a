// SPDX-License-Identifier: Apache-2.0
// What programs did to files since the mount was made.
// Threads: all functions may be called from any thread; snapshot() does not show one moment.
#pragma once

#include <atomic>
#include <cstdint>

namespace ckptfs::fs {

struct FileStatistics {
    // Bytes that programs wrote and read.
    std::uint64_t bytes_written = 0;
    std::uint64_t bytes_read = 0;
    // Opens for reading past this process; what was read by them is not counted.
    std::uint64_t opens_passed_through = 0;
    std::uint64_t files_committed = 0;
    // Bytes committed, as the files have them and as they are stored.
    std::uint64_t bytes_committed = 0;
    std::uint64_t bytes_stored = 0;
    // Files that a program could not write, and files that were not published because their writer was killed.
    std::uint64_t files_failed = 0;
    std::uint64_t files_held_back = 0;
    // Files and directories that the node table remembers, because the kernel knows them.
    std::uint64_t names_known = 0;
    // Names whose removal was acknowledged and is on its way to the bucket.
    std::uint64_t removals_under_way = 0;
    // Renames and removals that are not answered yet, or whose callers were killed.
    std::uint64_t name_changes_under_way = 0;
    // Files that failed, and whose records are not in the bucket yet: other mounts could commit a marker over them.
    std::uint64_t failures_untold = 0;
    // DeleteConditions is probing the store: an object of the probe may be there.
    bool probes_store = false;
};

class FileCounters {
public:
    void written(std::uint64_t bytes) { bytes_written_.fetch_add(bytes, std::memory_order_relaxed); }
    void read(std::uint64_t bytes) { bytes_read_.fetch_add(bytes, std::memory_order_relaxed); }
    void passed_through() { opens_passed_through_.fetch_add(1, std::memory_order_relaxed); }
    void committed(std::uint64_t size, std::uint64_t stored) {
        files_committed_.fetch_add(1, std::memory_order_relaxed);
        bytes_committed_.fetch_add(size, std::memory_order_relaxed);
        bytes_stored_.fetch_add(stored, std::memory_order_relaxed);
    }
    void failed() { files_failed_.fetch_add(1, std::memory_order_relaxed); }
    void held_back() { files_held_back_.fetch_add(1, std::memory_order_relaxed); }

    [[nodiscard]] FileStatistics snapshot() const {
        FileStatistics counts;
        counts.bytes_written = bytes_written_;
        counts.bytes_read = bytes_read_;
        counts.opens_passed_through = opens_passed_through_;
        counts.files_committed = files_committed_;
        counts.bytes_committed = bytes_committed_;
        counts.bytes_stored = bytes_stored_;
        counts.files_failed = files_failed_;
        counts.files_held_back = files_held_back_;
        return counts;
    }

private:
    std::atomic<std::uint64_t> bytes_written_{0};
    std::atomic<std::uint64_t> bytes_read_{0};
    std::atomic<std::uint64_t> opens_passed_through_{0};
    std::atomic<std::uint64_t> files_committed_{0};
    std::atomic<std::uint64_t> bytes_committed_{0};
    std::atomic<std::uint64_t> bytes_stored_{0};
    std::atomic<std::uint64_t> files_failed_{0};
    std::atomic<std::uint64_t> files_held_back_{0};
};

}  // namespace ckptfs::fs
