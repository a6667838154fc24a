// SPDX-License-Identifier: Apache-2.0
// Keeps on the node's disk what was written, once that disk has time (--ack disk).
//
// The disk that acknowledges a save has its bytes as they will be stored. Keeping them at once, decoded, would write
// everything twice while the job waits. So they are read back when no file is being written, one file after the other
// in the order of acknowledgement, and the reader keeps them. A version that was replaced or removed is left out; so
// are the oldest if what waits takes too much room, or too many open files.
//
// All other calls of FileCache go to the cache that it fills.
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
        // Its store has the versions whose bodies are held; its files are the cache that is filled.
        ReadEnvironment& read;
        Timer& timer;
        // Limit in bytes of all bodies that are held.
        std::uint64_t limit = 0;
        // Time since the disk was last busy with a file that a program waits for.
        std::function<Milliseconds()> quiet_for;
    };
    // Limit of versions that wait, each of which is an open file.
    static constexpr std::size_t kMostWaiting = 512;
    // How long the disk must have been quiet: ranks save one after the other, and a job computes between two files.
    static constexpr Milliseconds kQuiet{1000};

    explicit KeepingBehind(const Environment& environment)
        : environment_(environment), files_(*environment.read.files), timers_(environment.timer) {}
    ~KeepingBehind() override { stop(); }
    KeepingBehind(const KeepingBehind&) = delete;
    KeepingBehind& operator=(const KeepingBehind&) = delete;

    // This version is under the key now. `body` holds its data, which takes `bytes` on the disk; null if not all of it
    // is there.
    void acknowledged(const std::string& key, const std::string& etag, std::uint64_t bytes,
                      std::shared_ptr<const void> body) EXCLUDES(mutex_);
    void removed(const std::string& key) EXCLUDES(mutex_);

    // For a full disk: before it returns, frees the bodies that are due to be released, or else leaves out the oldest
    // version. False if there is none.
    [[nodiscard]] bool make_room() EXCLUDES(mutex_);
    // For the end of the mount: from now on reads without waiting for a quiet time. Calls `done` once no version waits,
    // or stop() is called.
    void finish(std::function<void()> done) EXCLUDES(mutex_);
    void stop() EXCLUDES(mutex_);
    // The number of versions that are still to be kept.
    [[nodiscard]] std::uint64_t waiting() const EXCLUDES(mutex_);

    // Null: nothing is kept while it is being written.
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
        // The key under which it was acknowledged first.
        std::string key;
        std::string etag;
        std::uint64_t bytes = 0;
        std::shared_ptr<const void> body;
        // The keys that it is under, as far as is known; several, because copies may have its ETag. Then its ETag and
        // those of its renamed copies.
        std::set<std::string> keys;
        std::set<std::string> etags;
        // Renames of what is kept, to be repeated once the reading has ended.
        std::vector<std::function<void()>> renames;
    };
    // The state of the version that is being read.
    struct Reading {
        std::uint64_t number = 0;
        std::shared_ptr<FileReader> reader;
        std::shared_ptr<ReadStream> stream;
        std::uint64_t offset = 0;
    };
    using ReadingPtr = std::shared_ptr<Reading>;

    // Destroying a body removes its file. Only a thread of the disk may wait for that.
    using Bodies = std::vector<std::shared_ptr<const void>>;
    // Bodies that wait for such a thread, or for a save that needs their room, to destroy them.
    class Released {
    public:
        void add(Bodies bodies) EXCLUDES(mutex_) {
            const MutexLock lock(mutex_);
            std::move(bodies.begin(), bodies.end(), std::back_inserter(waiting_));
        }
        // Destroys them; false if there are none. Waits for the disk, also for bodies that another thread is
        // destroying.
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
    // The waiting version with this ETag, or null.
    [[nodiscard]] Version* find(const std::string& etag) REQUIRES(mutex_);
    void note_rename(Version& version, const std::string& etag, std::function<void()> rename) REQUIRES(mutex_);
    void next() EXCLUDES(mutex_);
    void open(std::uint64_t number, const std::string& key, const std::string& etag);
    void opened(const ReadingPtr& reading);
    // Reads the next frames, if the version has not been left out.
    void read_on(const ReadingPtr& reading) EXCLUDES(mutex_);
    void read_frames(const ReadingPtr& reading, std::uint64_t end);
    void ended(std::uint64_t number) EXCLUDES(mutex_);
    // How long to wait until the disk has been quiet for kQuiet.
    [[nodiscard]] Milliseconds pause() const REQUIRES(mutex_);

    const Environment environment_;
    FileCache& files_;
    const std::shared_ptr<Released> released_ = std::make_shared<Released>();
    mutable Mutex mutex_;
    // By number, which is the order of acknowledgement.
    std::map<std::uint64_t, Version> versions_ GUARDED_BY(mutex_);
    // The numbers of the versions, by key and by ETag.
    std::map<std::string, std::uint64_t> by_key_ GUARDED_BY(mutex_);
    std::map<std::string, std::uint64_t> by_etag_ GUARDED_BY(mutex_);
    std::uint64_t last_number_ GUARDED_BY(mutex_) = 0;
    std::uint64_t bytes_ GUARDED_BY(mutex_) = 0;
    // A version is being read, or a timer runs for the next one.
    bool is_busy_ GUARDED_BY(mutex_) = false;
    bool is_ending_ GUARDED_BY(mutex_) = false;
    bool stopped_ GUARDED_BY(mutex_) = false;
    std::vector<std::function<void()>> finished_ GUARDED_BY(mutex_);
    OwnedTimers timers_;
};

}  // namespace ckptfs
