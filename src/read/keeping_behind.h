// SPDX-License-Identifier: Apache-2.0
// Keeps on the node's disk what was written, once that disk has time (--ack disk).
//
// The disk that acknowledges a save has its bytes as they will be stored. To keep them beside that as they are read
// would write everything twice while the job waits. So they are read back when no file is being written, one file after
// the other in the order of acknowledgement, and the reader keeps them. A version that was replaced or removed is left
// out; so are the oldest where what waits takes too much room, or too many open files.
//
// For the rest it is the cache that it fills.
//
// Ownership: the environment outlives it, and whatever it calls back. Threads: as FileCache.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/owned_timers.h"
#include "ckptfs/clock.h"
#include "ckptfs/file_cache.h"
#include "read/file_reader.h"

namespace ckptfs {

class KeepingBehind final : public FileCache {
public:
    struct Environment {
        // Of a store that has the versions whose bodies are held. Its files are those that are filled.
        ReadEnvironment& read;
        Timer& timer;
        // In bytes: of all bodies that are held.
        std::uint64_t limit = 0;
        // Since the disk was last busy with a file that a program waits for.
        std::function<Milliseconds()> quiet_for;
    };
    // Each is an open file.
    static constexpr std::size_t kMostWaiting = 512;
    // Ranks save one after the other, and a job does its sums between two files.
    static constexpr Milliseconds kQuiet{1000};

    explicit KeepingBehind(const Environment& environment)
        : environment_(environment), files_(*environment.read.files), timers_(environment.timer) {}
    ~KeepingBehind() override { stop(); }
    KeepingBehind(const KeepingBehind&) = delete;
    KeepingBehind& operator=(const KeepingBehind&) = delete;

    // This is under the key now. `body` holds its bytes, and so many on the disk; null where they are not all there.
    void acknowledged(const std::string& key, const std::string& etag, std::uint64_t bytes,
                      std::shared_ptr<const void> body) EXCLUDES(mutex_);
    void removed(const std::string& key) EXCLUDES(mutex_);

    // The disk is full: leaves out the oldest, at once. False where none waits.
    [[nodiscard]] bool make_room() EXCLUDES(mutex_);
    // For the end of the mount: waits for no quiet time any more. Calls back once nothing waits, or it is stopped.
    void finish(std::function<void()> done) EXCLUDES(mutex_);
    void stop() EXCLUDES(mutex_);
    // Versions that are to be kept.
    [[nodiscard]] std::uint64_t waiting() const EXCLUDES(mutex_);

    // Nothing is kept beside.
    [[nodiscard]] std::shared_ptr<FileBeingKept> begin() override { return nullptr; }
    [[nodiscard]] bool may_have(const std::string& etag) const override { return files_.may_have(etag); }
    void whole_size(const ObjectInfo& object, bool is_encoded, Size done) override {
        files_.whole_size(object, is_encoded, std::move(done));
    }
    void bytes_kept(const ObjectInfo& object, Kept done) override { files_.bytes_kept(object, std::move(done)); }
    void drop(const ObjectInfo& object, std::function<void(bool)> done) override {
        files_.drop(object, std::move(done));
    }
    void renamed(const ObjectInfo& object, const ObjectInfo& copy) override EXCLUDES(mutex_);
    void renamed(std::vector<RenamedObject> objects) override EXCLUDES(mutex_);
    [[nodiscard]] std::shared_ptr<KeptFile> file(const ObjectInfo& object, bool is_encoded,
                                                 std::uint64_t size) override {
        return files_.file(object, is_encoded, size);
    }
    void when_written(std::function<void()> done) override { files_.when_written(std::move(done)); }

private:
    struct Version {
        // Where it was first.
        std::string key;
        std::string etag;
        std::uint64_t bytes = 0;
        std::shared_ptr<const void> body;
        // Where it is, as far as that is known: copies may have its ETag.
        std::set<std::string> keys;
        std::set<std::string> etags;
        // What becomes of what is kept of it, once all is.
        std::vector<std::function<void()>> renames;
    };
    // Of the version that is being read.
    struct Reading {
        std::uint64_t number = 0;
        std::shared_ptr<FileReader> reader;
        std::shared_ptr<ReadStream> stream;
        std::uint64_t offset = 0;
    };
    using ReadingPtr = std::shared_ptr<Reading>;

    // With a body its file goes. Only a thread of the disk may wait for that.
    using Bodies = std::vector<std::shared_ptr<const void>>;
    // Those that wait for one, or for a save that needs their room.
    class Released {
    public:
        void add(Bodies bodies) EXCLUDES(mutex_) {
            const MutexLock lock(mutex_);
            std::move(bodies.begin(), bodies.end(), std::back_inserter(waiting_));
        }
        // False where there are none. Waits for the disk, also for those that another thread is removing.
        bool clear() EXCLUDES(mutex_, removing_) {
            const MutexLock one_at_a_time(removing_);
            Bodies bodies;
            {
                const MutexLock lock(mutex_);
                bodies.swap(waiting_);
            }
            return !bodies.empty();
        }

    private:
        Mutex removing_;
        Mutex mutex_;
        Bodies waiting_ GUARDED_BY(mutex_);
    };
    void release(Bodies bodies) const;
    void is_under(const std::string& key, std::uint64_t number, Bodies& released) REQUIRES(mutex_);
    void not_under(const std::string& key, Bodies& released) REQUIRES(mutex_);
    void leave_out(std::uint64_t number, Bodies& released) REQUIRES(mutex_);
    // Null where it does not wait.
    [[nodiscard]] Version* find(const std::string& etag) REQUIRES(mutex_);
    void note_rename(Version& version, const std::string& etag, std::function<void()> rename) REQUIRES(mutex_);
    void next() EXCLUDES(mutex_);
    void open(std::uint64_t number, const std::string& key, const std::string& etag);
    void opened(const ReadingPtr& reading);
    // The next frames, where it still waits.
    void read_on(const ReadingPtr& reading) EXCLUDES(mutex_);
    void read_frames(const ReadingPtr& reading, std::uint64_t end);
    void ended(std::uint64_t number) EXCLUDES(mutex_);
    // For how long not yet.
    [[nodiscard]] Milliseconds pause() const REQUIRES(mutex_);

    const Environment environment_;
    FileCache& files_;
    const std::shared_ptr<Released> released_ = std::make_shared<Released>();
    mutable Mutex mutex_;
    // In the order of acknowledgement.
    std::map<std::uint64_t, Version> versions_ GUARDED_BY(mutex_);
    // Numbers.
    std::map<std::string, std::uint64_t> by_key_ GUARDED_BY(mutex_);
    std::map<std::string, std::uint64_t> by_etag_ GUARDED_BY(mutex_);
    std::uint64_t last_number_ GUARDED_BY(mutex_) = 0;
    std::uint64_t bytes_ GUARDED_BY(mutex_) = 0;
    // One is being read, or a timer runs for it.
    bool is_busy_ GUARDED_BY(mutex_) = false;
    bool is_ending_ GUARDED_BY(mutex_) = false;
    bool stopped_ GUARDED_BY(mutex_) = false;
    std::vector<std::function<void()>> finished_ GUARDED_BY(mutex_);
    OwnedTimers timers_;
};

}  // namespace ckptfs
