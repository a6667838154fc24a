// SPDX-License-Identifier: Apache-2.0
// The files that this node keeps on a local disk (--cache-dir), for all mounts that name the directory.
//
// What is read or written is kept in the background; where the disk does not keep up, frames are left out. The files
// used longest ago are removed first, but none that is open. A disk that fails or does not respond is not used for a
// while, and a full one is not written to for as long; that is logged once, and the mount goes on without it.
//
// Ownership: outlives its files.
// Threads: all functions may be called from any thread. Only create() waits for the disk, and stop(), for a limited
// time.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "ckptfs/file_cache.h"
#include "ckptfs/status.h"
#include "disk/disk_threads.h"
#include "disk/kept_file.h"
#include "disk/sent_etags.h"

namespace ckptfs {

struct DiskCacheConfig {
    std::string directory;
    // Limit in bytes for all files in the directory, those of other mounts too. 0: half of the disk.
    std::uint64_t size = 0;
    // Endpoint and bucket, which distinguish equal keys.
    std::string store;
    // Frames that may wait to be written, and stay in memory until then (frames_waiting_for_disk).
    int most_waiting = 32;
    // A read that takes longer is fetched from the store. Far longer than a busy disk takes, and shorter than the time
    // after which programs are given up.
    Milliseconds answers_within = std::chrono::seconds(10);
    // Called for an object whose file is dropped.
    std::function<void(const std::string& key)> dropped = nullptr;
    // There is no store (--cache-only): no file is removed to make room, because it could not come back, and every
    // version is looked for on the disk.
    bool is_alone = false;
};

struct DiskCacheStatistics {
    std::uint64_t bytes_read = 0;
    std::uint64_t bytes_written = 0;
    // Bytes in the directory, of all mounts: as of its last scan, with what this mount has added or dropped since.
    std::uint64_t bytes_held = 0;
    std::uint64_t frames_left_out = 0;
    std::uint64_t frames_damaged = 0;
    // Why the disk is not used or not written to; empty otherwise.
    std::string failure;

    friend bool operator==(const DiskCacheStatistics&, const DiskCacheStatistics&) = default;
};

class DiskCache final : public FileCache, private KeptFileOwner {
public:
    // Open files, with two descriptors each. One that is closed to make place for others is opened again when it is
    // read on. Files in use stay open beyond this limit, as what is open is not removed.
    static constexpr std::size_t kMostOpen = 256;
    // How long a disk that failed is not used, and a full one not written to.
    static constexpr std::chrono::seconds kLeftAlone{60};

    // Creates the directory, which only this user may enter.
    static Result<std::unique_ptr<DiskCache>> create(DiskCacheConfig config, const Clock& clock, Timer& timer);
    ~DiskCache() override;

    // Begins to check files (KeptFile::open_checked()): first those that were used last, as a job that restarts reads
    // these.
    void begin_checks();

    [[nodiscard]] std::shared_ptr<FileBeingKept> begin() override;
    [[nodiscard]] bool may_have(const std::string& etag) const override;
    void whole_size(const ObjectInfo& object, bool is_encoded, Size done) override;
    void bytes_kept(const ObjectInfo& object, Kept done) override;
    void drop(const ObjectInfo& object, std::function<void(bool)> done) override;
    void renamed(const ObjectInfo& object, const ObjectInfo& copy) override;
    void renamed(std::vector<RenamedObject> objects) override;
    [[nodiscard]] std::shared_ptr<KeptFile> file(const ObjectInfo& object, bool is_encoded,
                                                 std::uint64_t size) override;
    void when_written(std::function<void()> done) override { writes_.post(std::move(done)); }
    // A version is in the bucket under `etag`, while this mount knows it by another one until it ends. It is kept under
    // `etag`.
    void sent(const ObjectInfo& acknowledged, const std::string& etag);

    // Writes what waits, and nothing after it. False if the disk hangs: then a thread may use this object for as long
    // as the process lives.
    [[nodiscard]] bool stop();
    [[nodiscard]] const DiskCacheConfig& config() const { return config_; }
    [[nodiscard]] DiskCacheStatistics statistics() const;

private:
    DiskCache(DiskCacheConfig config, const Clock& clock, Timer& timer);

    [[nodiscard]] const std::string& directory() const override { return config_.directory; }
    [[nodiscard]] bool write_later(std::function<void()> write) override;
    void post_write(std::function<void()> write) override;
    void read_in_time(std::function<DiskThreads::Deliver()> read, std::function<void()> late) override;
    [[nodiscard]] bool is_failing() const override { return reads_.hangs() || is_before(left_alone_until_); }
    [[nodiscard]] bool is_full() const override { return is_alone() || is_failing() || is_before(full_until_); }
    [[nodiscard]] bool is_alone() const override { return config_.is_alone; }
    [[nodiscard]] bool is_before(const std::atomic<SteadyTime::rep>& time) const;
    void failed(const char* action, const std::string& path, int errno_value) override;
    [[nodiscard]] CheckedFiles& checked() override { return checked_; }
    void check_later(std::shared_ptr<KeptFileOnDisk> file) override;
    [[nodiscard]] bool ends_check(const std::string& name) const override;
    void check(std::shared_ptr<KeptFileOnDisk> file);
    // Removes a file after its check has ended, which holds the file as a reader does.
    bool remove_unchecked(const std::string& name);
    void check_what_was_used_last();
    void found_damage(const std::string& path) override;
    void has_made(const std::string& name) override;
    void has_opened(std::weak_ptr<KeptFileOnDisk> file) override;
    void count_read(std::uint64_t bytes) override { bytes_read_.fetch_add(bytes, std::memory_order_relaxed); }
    void count_written(std::uint64_t bytes) override;
    void takes_room(std::uint64_t named, std::int64_t unnamed) override;
    // Removes the files used longest ago. If that is not enough, nothing more is kept for a while.
    void make_room_now(std::uint64_t size);
    [[nodiscard]] std::optional<std::uint64_t> whole_size_now(const KeptVersion& version);
    [[nodiscard]] std::uint64_t bytes_kept_now(const ObjectInfo& object);
    [[nodiscard]] bool drop_now(const ObjectInfo& object);
    // The object with the ETag under which it is kept.
    [[nodiscard]] ObjectInfo in_bucket(ObjectInfo object) const;
    [[nodiscard]] std::optional<KeptVersion> version_of(const ObjectInfo& object, bool is_encoded) const;
    void rename_later(const ObjectInfo& object, const ObjectInfo& copy);
    void close_idle();
    void rename_now(const std::vector<RenamedObject>& objects);
    void rename_now(const KeptVersion& from, const KeptVersion& to);
    // Renames the files on the disk.
    void rename_on_disk(const KeptVersion& from, const KeptVersion& to, std::uint64_t size);
    using Users = std::vector<std::shared_ptr<KeptFileOnDisk>>;
    void add_user(const std::string& name, const std::shared_ptr<KeptFileOnDisk>& user);
    // The users of all files whose names begin with `begin`.
    [[nodiscard]] Users users_of(const std::string& begin) const;
    // Users of the file `from` go on with it under the name of `to`.
    void move_users(const std::string& from, const KeptVersion& to);
    void note_what_is_there();

    const DiskCacheConfig config_;
    const Clock& clock_;
    // Bytes that are written before the directory is scanned again.
    const std::uint64_t look_after_;
    const std::size_t most_in_use_;
    DiskThreads reads_;
    DiskThreads writes_;
    DiskThreads checks_;

    std::atomic<bool> checks_files_{false};
    std::atomic<bool> is_ending_{false};
    CheckedFiles checked_;
    SentEtags sent_;

    // Frames that wait to be written.
    std::atomic<int> waiting_{0};
    // Tasks of post_write() that wait.
    std::atomic<int> waiting_behind_{0};
    std::atomic<std::uint64_t> bytes_read_{0};
    std::atomic<std::uint64_t> bytes_written_{0};
    std::atomic<std::uint64_t> bytes_held_{0};
    // Bytes written since the last scan of the directory.
    std::atomic<std::uint64_t> unlooked_{0};
    // Whether the files exceeded the limit at the last scan of the directory.
    std::atomic<bool> is_too_large_{false};
    // Bytes of this mount's files without a name.
    std::atomic<std::int64_t> unnamed_{0};
    std::atomic<std::uint64_t> left_out_{0};
    std::atomic<std::uint64_t> damaged_{0};
    // In ticks of the steady clock; 0 or past while all is well.
    std::atomic<SteadyTime::rep> left_alone_until_{0};
    std::atomic<SteadyTime::rep> full_until_{0};

    mutable Mutex mutex_;
    std::string failure_ GUARDED_BY(mutex_);
    // Names of files that wait to be checked.
    std::unordered_set<std::string> to_check_ GUARDED_BY(mutex_);
    // Names of the files that are being checked and removed; empty while none is.
    std::string is_checked_now_ GUARDED_BY(mutex_);
    std::string is_dropped_now_ GUARDED_BY(mutex_);
    Condition check_ended_;
    // Prefixes of the names of files that are in the directory, or were. Those of other mounts are known after a scan.
    std::unordered_set<std::string> known_ GUARDED_BY(mutex_);
    // Objects that read or keep a file, by its name; some have expired.
    std::multimap<std::string, std::weak_ptr<KeptFileOnDisk>> users_ GUARDED_BY(mutex_);
    std::size_t swept_at_ GUARDED_BY(mutex_) = 64;
    // In the order in which they were opened.
    std::deque<std::weak_ptr<KeptFileOnDisk>> open_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
