// SPDX-License-Identifier: Apache-2.0
// The log of the changes that were acknowledged and are not in the bucket yet, in segments: files that are only
// appended to, and removed from the oldest on once all of their changes have been made.
//
// A thread of its own writes and flushes what has been appended since it last did, in one go. Where the disk does not
// take it, all of that fails, with what is appended until its callers know, and is cut off; where not even that can be
// done, another segment begins with the word that it does not count.
//
// Threads: all functions may be called from any thread, and return at once, but for open(), stop() and the destructor,
// which wait for the disk.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "ckptfs/status.h"
#include "writeback/unsent_change.h"

namespace ckptfs {

class ChangeLog {
public:
    // In bytes: then the next one begins.
    static constexpr std::uint64_t kSegmentSize = std::uint64_t{8} << 20;

    struct Opened {
        std::unique_ptr<ChangeLog> log;
        // What earlier mounts have left, in order.
        std::vector<LogEntry> entries;
        // When they wrote the last of it, by the clock of the machine.
        WallTime last_written{};
    };
    // The directory is there, and only this log uses it. `segment_size`: for tests. `make_room` removes something from
    // a full disk, or returns false; it is called on the thread of the log.
    static Result<Opened> open(const std::string& directory, std::uint64_t segment_size = kSegmentSize,
                               std::function<bool()> make_room = nullptr);
    // As stop().
    ~ChangeLog();
    ChangeLog(const ChangeLog&) = delete;
    ChangeLog& operator=(const ChangeLog&) = delete;

    // `done` is called on the thread of the log, in the order of the calls, once the change is on the disk, or was not
    // taken by it. Must not be called after stop().
    void append(const UnsentChange& change, std::function<void(Status)> done);
    // As append(). What follows from a change may only be made once the disk knows that the change was.
    void sent(const SentChange& change, std::function<void(Status)> done);
    // Writes what was appended, and ends. Nothing is left of it where all changes have been made.
    void stop();

private:
    struct Segment {
        std::string path;
        // Changes in it that have not been made.
        std::set<std::uint64_t> unsent;
    };
    struct Waiting {
        std::string text;
        std::uint64_t number = 0;
        bool is_sent = false;
        // The directory is to have the names of its files first.
        bool has_files = false;
        std::function<void(Status)> done;
    };

    ChangeLog(std::string directory, FileDescriptor directory_file, std::uint64_t segment_size,
              std::function<bool()> make_room);
    // Its last batch was not written whole.
    struct CutSegment {
        std::string path;
        std::uint64_t whole = 0;
    };
    [[nodiscard]] Status read_segments(Opened& into);
    [[nodiscard]] Failure is_damaged(const std::string& path, std::uint64_t at) const;
    [[nodiscard]] Status shorten(const CutSegment& cut) const;
    void count(const std::vector<LogEntry>& entries, const std::string& path) REQUIRES(mutex_);
    void add(Waiting waiting) EXCLUDES(mutex_);
    void run();
    Status write(const std::vector<Waiting>& batch);
    Status write_once(const std::vector<Waiting>& batch);
    // What was not flushed goes.
    [[nodiscard]] bool cut_back();
    static void answer(std::vector<Waiting>& batch, const Status& written);
    [[nodiscard]] std::vector<Waiting> take_waiting() EXCLUDES(mutex_);
    void cut_off(const std::vector<Waiting>& refused);
    Status begin_segment();
    void note_written(const std::vector<Waiting>& batch) EXCLUDES(mutex_);
    void note_made(std::uint64_t number) REQUIRES(mutex_);
    // But for so many, the last ones.
    void remove_made(std::size_t stay) EXCLUDES(mutex_);
    [[nodiscard]] Failure failed(const std::string& path, const char* what) const;

    const std::string directory_;
    const FileDescriptor directory_file_;
    const std::uint64_t segment_size_;
    const std::function<bool()> make_room_;

    // Of the log's thread.
    FileDescriptor file_;
    std::uint64_t size_ = 0;
    std::uint64_t next_segment_ = 1;
    // What the next write begins with.
    std::string refused_;
    // The segment that could not be removed last.
    std::string kept_;

    Mutex mutex_;
    Condition changed_;
    std::vector<Waiting> waiting_ GUARDED_BY(mutex_);
    std::deque<Segment> segments_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

}  // namespace ckptfs
