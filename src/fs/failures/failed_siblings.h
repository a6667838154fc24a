// SPDX-License-Identifier: Apache-2.0
// Files of this mount that could not be written, and the records that tell other mounts of them.
//
// A record is a small object .ckptfs/failed/DIR/NAME. It is written when the file fails, and removed when the file was
// written again or removed; both are tried until they succeed, and meanwhile this mount knows better than the bucket.
// All mounts share one record per name. A mount writes none if the version before the failure has been replaced
// meanwhile: it would take the place of a failure of the mount that replaced it.
//
// Changes are in failed_siblings.cc, records in failed_siblings_records.cc, questions in failed_siblings_questions.cc.
//
// Memory is bounded: beyond kMaxFiles, files whose records are in the bucket are remembered there only.
// Threads: all functions may be called from any thread and return at once; callbacks run without locks held, on any
// thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/outbox.h"
#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "fs/failure_notes.h"
#include "fs/failures/commit_policy.h"

namespace ckptfs::fs {

struct DiskAcknowledgement;

// What all records of a mount have in common.
struct RecordPlace {
    // Prefix of the mount's keys.
    std::string prefix;
    std::string host;
    Milliseconds ttl{0};
};

struct FailedFile {
    std::string key;
    std::string reason;
    // ETag of the version that stays: empty if there is none, absent if it is not known.
    std::optional<std::string> etag_before;
    pid_t process = 0;
    // The machine where the file failed, if it is another one: its directory was renamed here.
    std::string host{};
    // Commits of the file that failed: an object that one of them has left all the same is not another writer's.
    std::vector<std::string> unanswered{};
    // When the file failed, if not now.
    std::optional<WallTime> since{};
    // When the first of the attempts that failed, and that nothing has made good, began to write the file; if known.
    std::optional<WallTime> began{};
    // How long ago the file failed under this name, if not now.
    SteadyTime::duration ago{0};
    // When the file was opened for writing, which tells one attempt from another.
    SteadyTime opened{};
};

// A rename, link or symlink, and the process that asked for it.
struct RenamedFile {
    std::string old_key;
    std::string new_key;
    // When the file was opened for writing.
    SteadyTime opened{};
    pid_t process = 0;
    // Whether a process still runs.
    std::function<bool(pid_t)> runs;
};

class FailedSiblings {
public:
    // The longest that a caller waits for a record.
    static constexpr Milliseconds kLongestWait{10'000};
    static constexpr Milliseconds kTick{5'000};
    static constexpr std::size_t kMaxFiles = 10'000;

    // `store`: the bucket itself. `acknowledging`: null if the bucket acknowledges, not a disk.
    FailedSiblings(ObjectStore& store, Clock& clock, Timer& timer, RecordPlace place, FailureNotes notes,
                   const DiskAcknowledgement* acknowledging = nullptr);
    ~FailedSiblings();
    FailedSiblings(const FailedSiblings&) = delete;
    FailedSiblings& operator=(const FailedSiblings&) = delete;

    // To be called once for each failure. A further call before the failure is cleared makes no difference if it is for
    // the same attempt (FailedFile::opened) over the same version (FailedFile::etag_before), unless it names a commit
    // without a reply that was not known yet.
    void add(FailedFile file);
    // The file was written again or removed. `then` is called when the record is gone from the bucket, or the wait was
    // long (kLongestWait).
    void clear(const std::string& key, std::function<void()> then);
    // Like clear(), by a commit that began at `begun`: a later failure is that of another attempt, and stays.
    void clear_from_before(const std::string& key, SteadyTime begun, std::function<void()> then);
    // Clears the failure if the file has not failed once more since below() returned it.
    void clear_failure(const FailedRecord& failure);
    // Like clear(), for every key that begins with `directory`.
    void clear_below(const std::string& directory, std::function<void()> then);
    // Forgets failures whose records are in the bucket: another mount acts for them, and for their records.
    void leave_recorded_below(const std::string& directory);
    // Calls back when the record of this file is in the bucket, or the attempt to write it has failed, or the wait was
    // long; at once if none is being written.
    void when_recorded(const std::string& key, std::function<void()> then);
    // For the end of the mount: tries again at once and then every kTick, and calls back when every failed file has its
    // record in the bucket.
    void when_all_recorded(std::function<void()> then);

    // A rename of a failed file to `new_key` was refused.
    void was_to_become(const std::string& old_key, const std::string& new_key);
    // Clears the failures that the rename resolves: that of the new name, and those of files that were to become it; if
    // there are none, that of one temporary file in the same directory that the same program, or one that has ended,
    // failed to write before it opened this one.
    void renamed(const RenamedFile& renamed, std::function<void()> then);
    // The directory was renamed: failures below it go with it.
    void directory_renamed(const std::string& old_directory, const std::string& new_directory,
                           std::function<void()> then);

    // Failures below `directory` that are not cleared, with their times by this machine's clock.
    [[nodiscard]] std::vector<FailedRecord> below(const std::string& directory) const;
    // How many failures are not cleared, and the `most` latest of them.
    [[nodiscard]] UnwrittenFiles unwritten(std::size_t most) const;
    [[nodiscard]] bool knows(const std::string& key) const;
    // Whether the file failed and its record is not in the bucket yet.
    [[nodiscard]] bool is_untold(const std::string& key) const;
    [[nodiscard]] std::vector<std::string> untold() const;
    // Whether unlink(2) is to find the name of a failed file although nothing is there: until a process has looked and
    // found nothing.
    [[nodiscard]] bool can_be_unlinked(const std::string& key) const;
    void looked_at(const std::string& key);
    // Keys whose failures were cleared but whose records may still be there, with the records' ETags, which are empty
    // if they are not known.
    [[nodiscard]] std::map<std::string, std::string> being_cleared(const std::string& directory) const;
    [[nodiscard]] std::string record_key(const std::string& key) const;
    // ETag of the record of this file, if this mount has written it; empty if it has not, or not yet.
    [[nodiscard]] std::string record_etag(const std::string& key) const;
    // Returns a function that may be called often, from any thread. `then` is called once: by its first call, or after
    // kLongestWait.
    [[nodiscard]] std::function<void()> in_time(std::function<void()> then);

private:
    struct Entry {
        FailedFile file;
        // Of an earlier attempt that failed, and that nothing here has made good.
        std::optional<FailedRecord> former;
        WallTime failed{};
        SteadyTime failed_at{};
        std::string intended_key;
        // The number of this failure of the file, from 1.
        int failure_number = 0;
        bool cleared = false;
        bool looked_at = false;
        // FailureNotes has this failure.
        bool noted = false;
        // `recorded`: the bucket holds the record of this failure. `may_exist`: it may hold a record of this key.
        bool recorded = false;
        bool may_exist = false;
        // ETag of the record that was written last: another mount may have put its own in the place.
        std::string record_etag;
        // The record that was written last, and those tried since whose writing failed, or was not answered.
        std::vector<FailedRecord> own_records;
        std::chrono::seconds late{0};
        bool in_flight = false;
        int failures = 0;
        SteadyTime next_try{};
        std::vector<std::function<void()>> waiting;
    };
    using Entries = std::map<std::string, Entry>;
    [[nodiscard]] FailedRecord record_of(const Entry& entry) const;
    void describe_to_others(FailedFile& file) const;
    [[nodiscard]] const std::string& host_of(const Entry& entry) const {
        return entry.file.host.empty() ? place_.host : entry.file.host;
    }

    void note(Entry& entry) REQUIRES(mutex_);
    void end_note(Entry& entry) REQUIRES(mutex_);
    void settle(Entries::iterator entry) REQUIRES(mutex_);
    void write_record(const std::string& key, const Entry& entry) REQUIRES(mutex_);
    // What is to be written. `failed`: when the file failed under this name.
    struct NewRecord {
        int failure_number = 0;
        SteadyTime failed{};
        FailedRecord record;
    };
    // Takes over from an earlier record when the file began to be written, if that attempt still counts as failed.
    void look_at_former(const std::string& key, NewRecord record, std::optional<ObjectInfo> object);
    void put_record(const std::string& key, NewRecord record);
    void remove_record(const std::string& key, const Entry& entry) REQUIRES(mutex_);
    // Reads the record of this file into `text`.
    [[nodiscard]] GetRequest record_request(const std::string& key, const std::shared_ptr<std::string>& text) const;
    // Removes the record if it is one of `own`: another mount's stays.
    void remove_if_among(const std::string& key, const std::vector<FailedRecord>& own);
    void remove_version(const std::string& key, const std::string& record_etag);
    // Another writer's version has the name by now: no record is needed.
    void made_good_elsewhere(const std::string& key, int failure_number);
    void clear_entry(Entries::iterator entry, std::function<void()> then) REQUIRES(mutex_);
    static void note_tried(Entry& entry, const FailedRecord& record);
    void make_room() REQUIRES(mutex_);
    void start_ticking() REQUIRES(mutex_);
    void expire(Entry& entry) REQUIRES(mutex_);
    [[nodiscard]] bool all_recorded() const REQUIRES(mutex_);
    void answer_if_all_recorded() REQUIRES(mutex_);
    [[nodiscard]] Entries::iterator retried_by(const RenamedFile& renamed) REQUIRES(mutex_);
    [[nodiscard]] Entries::iterator first_below(const std::string& directory) REQUIRES(mutex_);

    // What a request was to write; `failure_number` is 0 if it was to remove the record.
    struct WrittenRecord {
        int failure_number = 0;
        std::chrono::seconds late{0};
        // As it is parsed when it is read again.
        FailedRecord record;
    };
    void answered(const std::string& key, const WrittenRecord& written, const Status& status,
                  const std::string& record_etag = {});
    void tick();

    ObjectStore& store_;
    Clock& clock_;
    Timer& timer_;
    const RecordPlace place_;
    const FailureNotes notes_;
    const DiskAcknowledgement* const acknowledging_;

    mutable Mutex mutex_;
    Outbox outbox_ GUARDED_BY(mutex_);
    Entries entries_ GUARDED_BY(mutex_);
    bool ticking_ GUARDED_BY(mutex_) = false;
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::vector<std::function<void()>> waiting_for_all_ GUARDED_BY(mutex_);
    Timer::Id tick_ GUARDED_BY(mutex_) = 0;
};

}  // namespace ckptfs::fs
