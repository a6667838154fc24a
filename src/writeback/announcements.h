// SPDX-License-Identifier: Apache-2.0
// Tells other mounts of files that were acknowledged here, or are being written, and are not in the bucket yet: with
// an object below .ckptfs/unsent/ for each directory that has any. No mount commits a marker over one
// (fs/commit_gate.h).
//
// It is there before a file of its directory is acknowledged, stands for those that begin within kGeneration of it, is
// written anew every kUnsentToldEvery, and is removed when the last of them is in the bucket, and no other has come for
// a moment. Its name has the ID of the disk, so that the next mount that uses the disk ends it after a kill; when it
// was made, for people; and a UUID, so that no late removal meets a later one.
//
// A marker waits for those that were there before it was acknowledged. Files that are acknowledged after a marker have
// others than those before it, made after it: so no two markers, of however many disks, ever wait for each other.
//
// Ownership: the environment outlives it. Threads: all functions may be called from any thread, and return at once, but
// for stop(). Nothing is called back with a lock held.
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
    // Files that begin later have another object.
    static constexpr Milliseconds kGeneration{2'000};

    struct Environment {
        // The bucket itself.
        ObjectStore& store;
        Timer& timer;
        // The store's time.
        const Clock& clock;
        // Of the mount's keys.
        std::string prefix;
        // Of the disk, a UUID.
        std::string id;
        // For who waits.
        std::string host;
        // Why those of earlier mounts are not there yet; for each of them, as often as it is tried.
        std::function<void(const Error& why)> left_failed{};
    };
    explicit Announcements(Environment environment);
    // As stop().
    ~Announcements();
    Announcements(const Announcements&) = delete;
    Announcements& operator=(const Announcements&) = delete;

    // One file more in the key's directory. Calls back once the bucket says so, with what end() is to be called with.
    void begin(const std::string& key, StoreDone<std::string> done);
    // A marker is acknowledged.
    void begin_next_run();
    // Whether it was made after the last marker; not once it is to be removed.
    [[nodiscard]] bool is_of_this_run(const std::string& announcement) const;
    // The file is in the bucket, will not be, or has another one. Nothing where it is empty.
    void end(const std::string& announcement);
    // Once, before any other: `left` are those of files that earlier mounts have left, one for each file. Calls back
    // once the bucket has them all, which it may have forgotten.
    void take_over(const std::vector<std::string>& left, std::function<void()> begun);
    // Those of earlier mounts stand for nothing else any more, once take_over() has called back: others know of the
    // files that were being written.
    void remove_left();
    // Removes those without files now, and calls back when no request is under way.
    void finish(std::function<void()> done);
    // Asks for nothing more, and waits for what is under way, which ends with the store. What there is stays.
    void stop();

private:
    struct Object {
        std::string directory;
        bool is_there = false;
        // It is not removed meanwhile: the request could be made later.
        bool is_being_written = false;
        std::uint64_t files = 0;
        // Markers that were acknowledged before it was made.
        std::uint64_t run = 0;
        // By an earlier mount: written until it is there.
        bool is_left = false;
        // For it to be there, each of a file.
        std::vector<StoreDone<std::string>> waiting;
    };

    [[nodiscard]] std::string directory_of(const std::string& key) const;
    // Of this run.
    std::string add_object(const std::string& directory) REQUIRES(mutex_);
    // Those that begin later are to have another object: until it is there, the last one stands for them.
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
    // Of requests; false once stopping.
    [[nodiscard]] bool begin_request() EXCLUDES(mutex_);
    void end_request() EXCLUDES(mutex_);

    const Environment environment_;
    mutable Mutex mutex_;
    Condition idle_;
    // By their keys.
    std::map<std::string, Object> objects_ GUARDED_BY(mutex_);
    // By directory, relative to the prefix: that of files that begin now, and until when.
    struct Latest {
        std::string object;
        SteadyTime until{};
        // Being written, to take its place.
        std::string next;
    };
    std::map<std::string, Latest> latest_ GUARDED_BY(mutex_);
    std::uint64_t run_ GUARDED_BY(mutex_) = 0;
    std::uint64_t under_way_ GUARDED_BY(mutex_) = 0;
    bool stopping_ GUARDED_BY(mutex_) = false;
    bool has_taken_over_ GUARDED_BY(mutex_) = false;
    bool removes_left_ GUARDED_BY(mutex_) = false;
    // Held by what was being written.
    std::vector<std::string> left_ GUARDED_BY(mutex_);
    std::vector<std::function<void()>> finishing_ GUARDED_BY(mutex_);
    OwnedTimers timers_;
};

}  // namespace ckptfs
