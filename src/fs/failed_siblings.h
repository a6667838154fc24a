// SPDX-License-Identifier: Apache-2.0
// Files of this mount that could not be written, and the records that tell other mounts of them.
//
// A record is a small object .ckptfs/failed/DIR/NAME. It is written when the file fails, and removed when the file was
// written again or removed; both are tried until they succeed, and meanwhile this mount knows better than the bucket.
// All mounts have one record of a name. One whose earlier version has been replaced meanwhile writes none: it would
// take the place of the failure of who replaced it.
//
// Changes are in failed_siblings.cc, records in failed_siblings_records.cc, questions in failed_siblings_questions.cc.
//
// Memory is bounded: of more than kMaxFiles, those whose records are in the bucket are remembered there only.
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
#include "fs/commit_policy.h"
#include "fs/failure_notes.h"

namespace ckptfs::fs {

struct DiskAcknowledgement;

// What records of a mount have in common.
struct RecordPlace {
    // Of the mount's keys.
    std::string prefix;
    std::string host;
    Milliseconds ttl{0};
};

struct FailedFile {
    std::string key;
    std::string reason;
    // The version that stays, empty where there is none; absent where that is not known.
    std::optional<std::string> etag_before;
    pid_t process = 0;
    // Where it failed on another machine, and its directory was renamed here.
    std::string host{};
    // Commits of it that failed: what one of them has left all the same is not what another has written.
    std::vector<std::string> unanswered{};
    // When it failed, where that is not now.
    std::optional<WallTime> since{};
    // When it began to be written, where that is known: by the first attempt of those that nothing has made good.
    std::optional<WallTime> began{};
    // For how long it has failed under this name, where that is not now.
    SteadyTime::duration ago{0};
    // When it was opened for writing, which tells one attempt from another.
    SteadyTime opened{};
};

// A rename that succeeded.
struct RenamedFile {
    std::string old_key;
    std::string new_key;
    // When the file was opened for writing.
    SteadyTime opened{};
    pid_t process = 0;
    // Whether that process still runs.
    std::function<bool(pid_t)> runs;
};

class FailedSiblings {
public:
    // The longest that a caller waits for a record.
    static constexpr Milliseconds kLongestWait{10'000};
    static constexpr Milliseconds kTick{5'000};
    static constexpr std::size_t kMaxFiles = 10'000;

    // `store`: the bucket itself. `acknowledging`: null where it acknowledges.
    FailedSiblings(ObjectStore& store, Clock& clock, Timer& timer, RecordPlace place, FailureNotes notes,
                   const DiskAcknowledgement* acknowledging = nullptr);
    ~FailedSiblings();
    FailedSiblings(const FailedSiblings&) = delete;
    FailedSiblings& operator=(const FailedSiblings&) = delete;

    // Once for each failure. Again for the same file over the same version, or of the same attempt where that is not
    // known, makes no difference before it is cleared, unless another commit of it was not answered.
    void add(FailedFile file);
    // The file was written again or removed. `then` comes when the bucket says so too, or the wait was long.
    void clear(const std::string& key, std::function<void()> then);
    // By a commit that began then: a failure that came later is that of another attempt.
    void clear_from_before(const std::string& key, SteadyTime begun, std::function<void()> then);
    // Where the file has not failed once more since this was asked for by below().
    void clear_failure(const FailedRecord& failure);
    // Everything whose key begins with it.
    void clear_below(const std::string& directory, std::function<void()> then);
    // Forgets those whose records are in the bucket: another mount acts for them, and for their records.
    void leave_recorded_below(const std::string& directory);
    // Calls back when the record of this file is in the bucket, at once where there is none to write.
    void when_recorded(const std::string& key, std::function<void()> then);
    // For the end of the mount: tries again at once and then every kTick, and calls back when the bucket says of every
    // failed file that it failed.
    void when_all_recorded(std::function<void()> then);

    // A rename of a failed file was refused: it was to become `new_key`.
    void was_to_become(const std::string& old_key, const std::string& new_key);
    // Clears what the rename makes good: the new name, files that were to become it, and one temporary file that the
    // same program, or one that has ended, failed to write before it opened this one.
    void renamed(const RenamedFile& renamed, std::function<void()> then);
    // Those below go with it.
    void directory_renamed(const std::string& old_directory, const std::string& new_directory,
                           std::function<void()> then);

    // Not cleared, with the time by this machine's clock.
    [[nodiscard]] std::vector<FailedRecord> below(const std::string& directory) const;
    // With the `most` latest of them.
    [[nodiscard]] UnwrittenFiles unwritten(std::size_t most) const;
    [[nodiscard]] bool knows(const std::string& key) const;
    // Whether it failed and the bucket does not say so yet.
    [[nodiscard]] bool is_untold(const std::string& key) const;
    [[nodiscard]] std::vector<std::string> untold() const;
    // Whether unlink(2) is to find the name although nothing is there. Not once a process has looked and found nothing.
    [[nodiscard]] bool can_be_unlinked(const std::string& key) const;
    void looked_at(const std::string& key);
    // Keys that records may still stand for although their files were cleared, with the records' ETags, which are
    // empty where these are not known.
    [[nodiscard]] std::map<std::string, std::string> being_cleared(const std::string& directory) const;
    [[nodiscard]] std::string record_key(const std::string& key) const;
    // Of the record of this file, as this mount has written it; empty where it has not, or not yet.
    [[nodiscard]] std::string record_etag(const std::string& key) const;
    // What it returns may be called often, from any thread; `then` is called once, after kLongestWait at the latest.
    [[nodiscard]] std::function<void()> in_time(std::function<void()> then);

private:
    struct Entry {
        FailedFile file;
        WallTime failed{};
        SteadyTime failed_at{};
        std::string intended_key;
        // Counts from 1.
        int failure_number = 0;
        bool cleared = false;
        bool looked_at = false;
        // In FailureNotes.
        bool noted = false;
        // The bucket holds this record; it may hold one of this key.
        bool recorded = false;
        bool may_exist = false;
        // Of the record that was written last: another mount may have put its own in the place.
        std::string record_etag;
        // What was written there last, and what has been tried since: writing it failed, or was not answered.
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
    // `failed`: under this name.
    void look_at_former(const std::string& key, int failure_number, SteadyTime failed, const FailedRecord& record);
    void put_record(const std::string& key, int failure_number, SteadyTime failed, FailedRecord record);
    void remove_record(const std::string& key, const Entry& entry) REQUIRES(mutex_);
    // Another mount's stays.
    // Reads the record of this file into `text`.
    [[nodiscard]] GetRequest record_request(const std::string& key, const std::shared_ptr<std::string>& text) const;
    void remove_if_among(const std::string& key, const std::vector<FailedRecord>& own);
    void remove_version(const std::string& key, const std::string& record_etag);
    // Another version has the name by now: no record is needed.
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

    // What was to be written; nothing where the record was to be removed.
    struct WrittenRecord {
        int failure_number = 0;
        std::chrono::seconds late{0};
        // As it is read.
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
