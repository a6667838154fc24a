// SPDX-License-Identifier: Apache-2.0
// Tells other mounts of files that were acknowledged or are being written here and are not in the bucket yet: by an
// announcement, an object below .ckptfs/unsent/, for each directory that has such files. No mount commits a marker over
// an announcement (fs/gate/commit_gate.h).
//
// An announcement exists before a file of its directory is acknowledged and covers the files that begin within
// kGeneration of it. It is rewritten every kUnsentToldEvery, and removed once the last of its files is in the bucket
// and no other has begun for a moment. Its name has the ID of the disk, so that the next mount that uses the disk
// removes it after a kill; the time when it was made, for people; and a UUID, so that a late removal never hits a later
// announcement.
//
// A marker waits for the announcements that existed before it was acknowledged. Files acknowledged after a marker get
// announcements made after it, so no two markers, of however many disks, wait for each other.
//
// Ownership: what the environment refers to outlives this object. Threads: all functions may be called from any thread,
// and return at once, except stop(). Nothing is called back with a lock held.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/owned_timers.h"
#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs {

class Announcements {
public:
    // Files that begin later than this after an announcement get another one.
    static constexpr Milliseconds kGeneration{2'000};

    struct Environment {
        // The bucket's own store.
        ObjectStore& store;
        Timer& timer;
        // Gives the store's time.
        const Clock& clock;
        // Prefix of the mount's keys.
        std::string prefix;
        // ID of the disk, a UUID.
        std::string id;
        // This machine's name, the body of each announcement: mounts that wait for it show the name.
        std::string host;
        // Called each time an announcement that an earlier mount left could not be written, until it is there.
        std::function<void(const Error& why)> left_failed{};
    };
    explicit Announcements(Environment environment);
    // Calls stop().
    ~Announcements();
    Announcements(const Announcements&) = delete;
    Announcements& operator=(const Announcements&) = delete;

    // Announces one more file in the key's directory. Calls back once the announcement is in the bucket, with its key,
    // which is to be passed to end().
    void begin(const std::string& key, StoreDone<std::string> done);
    // A marker is acknowledged: files that begin from now on get new announcements.
    void begin_next_run();
    // Whether `announcement` was made after the last marker was acknowledged; false once it is to be removed.
    [[nodiscard]] bool is_of_this_run(const std::string& announcement) const;
    // One of the announcement's files is in the bucket, will not be, or has another announcement. Does nothing for an
    // empty string.
    void end(const std::string& announcement);
    // To be called once, before any other function. `left`: the announcements of files that earlier mounts left, one
    // entry per file. Writes them again, as they may be gone from the bucket, and calls back once all are there.
    void take_over(const std::vector<std::string>& left, std::function<void()> begun);
    // Other mounts know by now of the files that earlier mounts were writing: removes announcements that stand for
    // nothing else, once take_over() has called back.
    void remove_left();
    // Removes announcements without files now, and calls back when no request is in flight.
    void finish(std::function<void()> done);
    // Sends nothing more and waits for requests in flight, which end with the store. Announcements that exist stay.
    void stop();

private:
    struct Object {
        std::string directory;
        bool is_there = false;
        // A PUT is in flight: it is not removed meanwhile, as the PUT could take effect after the removal.
        bool is_being_written = false;
        std::uint64_t files = 0;
        // `run_` when it was made: counts the markers that were acknowledged before.
        std::uint64_t run = 0;
        // An earlier mount left it: writing is tried again until it succeeds.
        bool is_left = false;
        // Files that wait for it to be in the bucket.
        std::vector<StoreDone<std::string>> waiting;
    };

    [[nodiscard]] std::string directory_of(const std::string& key) const;
    // Adds an announcement of this run and returns its key.
    std::string add_object(const std::string& directory) REQUIRES(mutex_);
    // Once kGeneration is over, adds the directory's next announcement and returns its key, for write(); else empty.
    // New files use the current one until the next is there.
    [[nodiscard]] std::string begin_next(const std::string& directory) REQUIRES(mutex_);
    void write(const std::string& object);
    void written(const std::string& object, const Status& status);
    void write_again(const std::string& object);
    void remove_unused(const std::string& object);
    void remove(const std::string& object, bool is_last);
    void taken_over(const std::function<void()>& begun);
    void end_left();
    void list_left(const std::string& token);
    void listed(const Result<ListResponse>& page);
    void forget(const std::string& object) REQUIRES(mutex_);
    void take_next(const std::string& object, bool is_there) REQUIRES(mutex_);
    // Counts a request as under way; false once stopping.
    [[nodiscard]] bool begin_request() EXCLUDES(mutex_);
    void end_request() EXCLUDES(mutex_);

    const Environment environment_;
    mutable Mutex mutex_;
    Condition idle_;
    // Announcements by key.
    std::map<std::string, Object> objects_ GUARDED_BY(mutex_);
    // The announcement of files that begin now in a directory.
    struct Latest {
        std::string object;
        // When files need the next one.
        SteadyTime until{};
        // The next one, while it is being written; else empty.
        std::string next;
    };
    // By directory, relative to the prefix.
    std::map<std::string, Latest> latest_ GUARDED_BY(mutex_);
    std::uint64_t run_ GUARDED_BY(mutex_) = 0;
    std::uint64_t under_way_ GUARDED_BY(mutex_) = 0;
    bool stopping_ GUARDED_BY(mutex_) = false;
    bool has_taken_over_ GUARDED_BY(mutex_) = false;
    bool removes_left_ GUARDED_BY(mutex_) = false;
    // After what was left has been listed once.
    bool lists_again_ GUARDED_BY(mutex_) = false;
    // Announcements held for files that earlier mounts were writing, until remove_left().
    std::vector<std::string> left_ GUARDED_BY(mutex_);
    std::vector<std::function<void()>> finishing_ GUARDED_BY(mutex_);
    OwnedTimers timers_;
};

}  // namespace ckptfs
