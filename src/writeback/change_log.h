// SPDX-License-Identifier: Apache-2.0
// The log of changes that were acknowledged and are not in the bucket yet. It consists of segments, files that are only
// appended to; the oldest is removed once all of its changes have been made.
//
// The log's own thread writes and flushes all entries appended since it last did as one batch. If the disk does not
// take a batch, the batch fails, with all entries appended until its callers know, and is cut off the segment. If that
// fails too, the next segment begins with entries that void the batch.
//
// Threads: all functions may be called from any thread, and return at once, except open(), stop() and the destructor,
// which wait for the disk.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
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
    // In bytes: a segment of this size is followed by the next one.
    static constexpr std::uint64_t kSegmentSize = std::uint64_t{8} << 20;

    struct Opened {
        std::unique_ptr<ChangeLog> log;
        // What earlier mounts have left, in order.
        std::vector<LogEntry> entries;
        // When earlier mounts last wrote to the log, at the latest, by the machine's clock.
        WallTime last_written{};
    };
    // The directory exists, and only this log uses it. `segment_size`: for tests. `make_room` removes something from a
    // full disk, or returns false; it is called on the log's thread.
    static Result<Opened> open(const std::string& directory, std::uint64_t segment_size = kSegmentSize,
                               std::function<bool()> make_room = nullptr);
    // Calls stop().
    ~ChangeLog();
    ChangeLog(const ChangeLog&) = delete;
    ChangeLog& operator=(const ChangeLog&) = delete;

    // `done` is called on the log's thread, in the order of the calls, once the change is on the disk or could not be
    // written. Must not be called after stop().
    void append(const UnsentChange& change, std::function<void(Status)> done);
    // As append(), for the note that a change was made. Changes that depend on it may be made only after `done` has
    // reported success.
    void sent(const SentChange& change, std::function<void(Status)> done);
    // As sent(), for the note that a marker will not be made. The note is there until sent() is called for its number.
    void given_up(const GivenUpChange& change, std::function<void(Status)> done);
    // Writes what was appended, and ends the thread. Removes all segments if all changes have been made.
    void stop();

private:
    struct Segment {
        std::string path;
        // Numbers of its changes that have not been made, and of markers that it says were given up.
        std::set<std::uint64_t> unsent;
    };
    struct Waiting {
        std::string text;
        std::uint64_t number = 0;
        // The change is not unsent any more; the entry is to be kept.
        bool is_sent = false;
        bool is_kept = false;
        // The entry names body files, whose names are to be flushed to the directory first.
        bool has_files = false;
        std::function<void(Status)> done;
    };

    ChangeLog(std::string directory, FileDescriptor directory_file, std::uint64_t segment_size,
              std::function<bool()> make_room);
    // A segment whose last batch was not written whole.
    struct CutSegment {
        std::string path;
        // Length up to the first entry that is cut off or damaged, in bytes.
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
    [[nodiscard]] std::string notes() EXCLUDES(mutex_);
    // Truncates the segment to what was flushed.
    [[nodiscard]] bool cut_back();
    static void answer(std::vector<Waiting>& batch, const Status& written);
    [[nodiscard]] std::vector<Waiting> take_waiting() EXCLUDES(mutex_);
    void cut_off(const std::vector<Waiting>& refused);
    Status begin_segment();
    // `begins_segment`: it came after copies of the notes_.
    void note_written(const std::vector<Waiting>& batch, bool begins_segment) EXCLUDES(mutex_);
    void note_made(std::uint64_t number) REQUIRES(mutex_);
    // Removes the oldest segments whose changes have all been made, except the last `stay` segments.
    void remove_made(std::size_t stay) EXCLUDES(mutex_);
    [[nodiscard]] Failure failed(const std::string& path, const char* what) const;

    const std::string directory_;
    const FileDescriptor directory_file_;
    const std::uint64_t segment_size_;
    const std::function<bool()> make_room_;

    // Used by the log's thread.
    FileDescriptor file_;
    std::uint64_t size_ = 0;
    std::uint64_t next_segment_ = 1;
    // Entries that void batches that could not be cut off: the next write begins with them.
    std::string refused_;
    // The last segment that could not be removed: each is logged once.
    std::string kept_;

    Mutex mutex_;
    Condition changed_;
    std::vector<Waiting> waiting_ GUARDED_BY(mutex_);
    std::deque<Segment> segments_ GUARDED_BY(mutex_);
    // Entries of given_up() that are still needed, by number. Each segment begins with them, so that they do not keep
    // the ones before.
    std::map<std::uint64_t, std::string> notes_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

}  // namespace ckptfs
