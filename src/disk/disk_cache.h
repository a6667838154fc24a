// SPDX-License-Identifier: Apache-2.0
// The files that this node keeps on a local disk (--cache-dir), for all mounts that name the directory.
//
// What is read or written is kept in the background; where the disk does not keep up, frames are left out. What was
// used longest ago goes first, but nothing that is open. A disk that fails or does not answer is left alone for a
// while, and one that is full takes nothing for as long; that is logged once, and the mount goes on without it.
//
// Ownership: outlives its files.
// Threads: all functions may be called from any thread. Only create() waits for the disk, and stop(), for a while.
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
    // Of all files in it, those of other mounts too. 0: half of the disk.
    std::uint64_t size = 0;
    // Endpoint and bucket: keys are told apart by them.
    std::string store;
    // Frames that wait to be written, and stay in memory until then (frames_waiting_for_disk).
    int most_waiting = 32;
    // What a read takes longer than is fetched from the store. Far above what a busy disk takes, and below what
    // programs are given up after.
    Milliseconds answers_within = std::chrono::seconds(10);
    // Called for an object whose file is dropped.
    std::function<void(const std::string& key)> dropped = nullptr;
    // There is no store: nothing goes, because it could not come back, and all is looked for.
    bool is_alone = false;
};

struct DiskCacheStatistics {
    std::uint64_t bytes_read = 0;
    std::uint64_t bytes_written = 0;
    // As it was counted last, by all mounts together.
    std::uint64_t bytes_held = 0;
    std::uint64_t frames_left_out = 0;
    std::uint64_t frames_damaged = 0;
    // Why it is left alone; empty while it is not.
    std::string failure;

    friend bool operator==(const DiskCacheStatistics&, const DiskCacheStatistics&) = default;
};

class DiskCache final : public FileCache, private KeptFileOwner {
public:
    // Two descriptors each. A file that others have pushed out is opened again when it is read on.
    // Those that are in use stay open beyond it, as what is open is not removed.
    static constexpr std::size_t kMostOpen = 256;
    // How long a disk that failed, or was full, is left alone.
    static constexpr std::chrono::seconds kLeftAlone{60};

    // Makes the directory, which only this user may enter.
    static Result<std::unique_ptr<DiskCache>> create(DiskCacheConfig config, const Clock& clock, Timer& timer);
    ~DiskCache() override;

    // From now on files are checked (KeptFile::open_checked()): at first those that were used last, as they are what a
    // job that restarts reads.
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
    // A version is in the bucket, under another ETag than it has here until the mount ends. It is kept under that.
    void sent(const ObjectInfo& acknowledged, const std::string& etag);

    // Writes what waits, and nothing after it. False where the disk hangs: then a thread may use this for as long as
    // the process lives.
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
    [[nodiscard]] bool is_full() const override { return is_failing() || is_before(full_until_); }
    [[nodiscard]] bool is_before(const std::atomic<SteadyTime::rep>& time) const;
    void failed(const char* action, const std::string& path, int errno_value) override;
    [[nodiscard]] CheckedFiles& checked() override { return checked_; }
    void check_later(std::shared_ptr<KeptFileOnDisk> file) override;
    [[nodiscard]] bool ends_check(const std::string& name) const override;
    void check(std::shared_ptr<KeptFileOnDisk> file);
    // The check of it ends first: that holds the file as a reader does.
    bool remove_unchecked(const std::string& name);
    void check_what_was_used_last();
    void found_damage(const std::string& path) override;
    void has_made(const std::string& name) override;
    void has_opened(std::weak_ptr<KeptFileOnDisk> file) override;
    void count_read(std::uint64_t bytes) override { bytes_read_.fetch_add(bytes, std::memory_order_relaxed); }
    void count_written(std::uint64_t bytes) override;
    void takes_room(std::uint64_t named, std::int64_t unnamed) override;
    // What was used longest ago goes. Nothing more is kept for a while where that is not enough.
    void make_room_now(std::uint64_t size);
    [[nodiscard]] std::optional<std::uint64_t> whole_size_now(const KeptVersion& version);
    [[nodiscard]] std::uint64_t bytes_kept_now(const ObjectInfo& object);
    [[nodiscard]] bool drop_now(const ObjectInfo& object);
    // With the ETag under which it is kept.
    [[nodiscard]] ObjectInfo in_bucket(ObjectInfo object) const;
    [[nodiscard]] std::optional<KeptVersion> version_of(const ObjectInfo& object, bool is_encoded) const;
    void rename_later(const ObjectInfo& object, const ObjectInfo& copy);
    void close_idle();
    void rename_now(const std::vector<RenamedObject>& objects);
    void rename_now(const KeptVersion& from, const KeptVersion& to);
    // What is on the disk.
    void rename_on_disk(const KeptVersion& from, const KeptVersion& to, std::uint64_t size);
    using Users = std::vector<std::shared_ptr<KeptFileOnDisk>>;
    void add_user(const std::string& name, const std::shared_ptr<KeptFileOnDisk>& user);
    // Of all files whose names begin so.
    [[nodiscard]] Users users_of(const std::string& begin) const;
    // Who uses what is kept goes on with it under the other name.
    void move_users(const std::string& from, const KeptVersion& to);
    void note_what_is_there();

    const DiskCacheConfig config_;
    const Clock& clock_;
    // How much is written before the directory is looked at again.
    const std::uint64_t look_after_;
    const std::size_t most_in_use_;
    DiskThreads reads_;
    DiskThreads writes_;
    DiskThreads checks_;

    std::atomic<bool> checks_files_{false};
    std::atomic<bool> is_ending_{false};
    CheckedFiles checked_;
    SentEtags sent_;

    std::atomic<int> waiting_{0};
    // Of those behind them.
    std::atomic<int> waiting_behind_{0};
    std::atomic<std::uint64_t> bytes_read_{0};
    std::atomic<std::uint64_t> bytes_written_{0};
    std::atomic<std::uint64_t> bytes_held_{0};
    std::atomic<std::uint64_t> unlooked_{0};
    // When it was looked last.
    std::atomic<bool> is_too_large_{false};
    std::atomic<std::int64_t> unnamed_{0};
    std::atomic<std::uint64_t> left_out_{0};
    std::atomic<std::uint64_t> damaged_{0};
    // Of the steady clock; 0 while all is well.
    std::atomic<SteadyTime::rep> left_alone_until_{0};
    std::atomic<SteadyTime::rep> full_until_{0};

    mutable Mutex mutex_;
    std::string failure_ GUARDED_BY(mutex_);
    // Names of files that wait for it.
    std::unordered_set<std::string> to_check_ GUARDED_BY(mutex_);
    // Empty while none is.
    std::string is_checked_now_ GUARDED_BY(mutex_);
    std::string is_dropped_now_ GUARDED_BY(mutex_);
    Condition check_ended_;
    // What the names of files begin with that are in the directory, or were. What other mounts add is known once it is
    // looked at.
    std::unordered_set<std::string> known_ GUARDED_BY(mutex_);
    // Who reads or keeps them, by their names; some are gone.
    std::multimap<std::string, std::weak_ptr<KeptFileOnDisk>> users_ GUARDED_BY(mutex_);
    std::size_t swept_at_ GUARDED_BY(mutex_) = 64;
    // As they were opened.
    std::deque<std::weak_ptr<KeptFileOnDisk>> open_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
