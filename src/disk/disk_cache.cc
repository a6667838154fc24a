// SPDX-License-Identifier: Apache-2.0
#include "disk/disk_cache.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/memory_limit.h"
#include "base/private_directory.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "disk/disk_space.h"
#include "disk/file_being_kept.h"

namespace ckptfs {

namespace {

// Enough to have an NVMe disk read ahead, and few enough to leave the processors to the job.
constexpr int kReaders = 8;
// One, so that writes keep their order.
constexpr int kWriters = 1;
constexpr int kCheckers = 1;
// One part in this many of the free memory: files of that size are checked at first, and are in the page cache then,
// for the job.
constexpr std::uint64_t kCheckedShare = 4;
// A check looks after each MiB whether it must end; on a disk that hangs the file stays.
constexpr std::chrono::seconds kCheckEndsWithin{1};
// Tasks without data that may wait for the writer: naming of files that are in the bucket, and renames.
constexpr int kMostWaitingBehind = 4096;
// Files that may wait to be checked: those of one checkpoint.
constexpr std::size_t kMostToCheck = 4096;
// The directory is scanned each time one part in this many of its size limit has been written. Each mount that shares
// the directory may exceed the limit by as much.
constexpr std::uint64_t kLooksPerSize = 64;

// Files in use may take a quarter of the descriptors that this process may have, two each.
std::size_t most_files_in_use() {
    constexpr std::size_t kShare = 8;
    rlimit files{};
    const bool is_known = getrlimit(RLIMIT_NOFILE, &files) == 0;
    return std::max<std::size_t>(DiskCache::kMostOpen, is_known ? files.rlim_cur / kShare : 0);
}

}  // namespace

Result<std::unique_ptr<DiskCache>> DiskCache::create(DiskCacheConfig config, const Clock& clock, Timer& timer) {
    if (Status made = make_private_directory(config.directory); !made) {
        return failure(std::move(made.error()));
    }
    if (config.is_alone) {
        config.size = std::numeric_limits<std::uint64_t>::max();
    } else if (config.size == 0) {
        struct statvfs disk {};
        if (statvfs(config.directory.c_str(), &disk) != 0) {
            return failure(errno, format("cannot look at {}: {}", escaped(config.directory), std::strerror(errno)));
        }
        config.size = static_cast<std::uint64_t>(disk.f_blocks) * disk.f_frsize / 2;
    }
    return std::unique_ptr<DiskCache>(new DiskCache(std::move(config), clock, timer));
}

DiskCache::DiskCache(DiskCacheConfig config, const Clock& clock, Timer& timer)
    : config_(std::move(config)),
      clock_(clock),
      look_after_(config_.size / kLooksPerSize),
      most_in_use_(most_files_in_use()),
      reads_(kReaders, timer),
      writes_(kWriters, timer),
      checks_(kCheckers, timer) {
    note_what_is_there();
    // The limit may have been larger before.
    post_write([this] { make_room_now(config_.size); });
}

DiskCache::~DiskCache() {
    static_cast<void>(stop());
}

bool DiskCache::stop() {
    is_ending_ = true;
    // A disk that hangs has been waited for already.
    const auto stopped = [this](DiskThreads& threads) {
        return threads.stop(threads.hangs() ? Milliseconds(0) : config_.answers_within);
    };
    const bool reads_ended = stopped(reads_);
    const bool writes_ended = stopped(writes_);
    return stopped(checks_) && reads_ended && writes_ended;
}

void DiskCache::begin_checks() {
    checks_files_ = true;
    checks_.post([this] { check_what_was_used_last(); });
}

void DiskCache::check_what_was_used_last() {
    std::vector<KeptOnDisk> kept = list_kept(config_.directory);
    std::sort(kept.begin(), kept.end(), [](const auto& one, const auto& other) { return one.used > other.used; });
    std::uint64_t room = available_ram() / kCheckedShare;
    KeptFileOwner& owner = *this;
    for (const KeptOnDisk& each : kept) {
        std::string header = header_on_disk(config_.directory, each.name);
        const std::optional<std::uint64_t> size = size_in_header(header);
        if (!size || is_ending_) {
            continue;
        }
        if (*size > room) {
            return;
        }
        room -= *size;
        check(std::make_shared<KeptFileOnDisk>(owner, each.name, std::move(header), *size));
    }
}

void DiskCache::check(std::shared_ptr<KeptFileOnDisk> file) {
    {
        const MutexLock lock(mutex_);
        if (is_dropped_now_ == file->name()) {
            return;
        }
        is_checked_now_ = file->name();
    }
    file->check();
    // Others may have the file, and not be reading.
    file->close_if_idle();
    file.reset();
    {
        const MutexLock lock(mutex_);
        is_checked_now_.clear();
    }
    check_ended_.notify_all();
}

bool DiskCache::ends_check(const std::string& name) const {
    const MutexLock lock(mutex_);
    return is_ending_ || is_dropped_now_ == name;
}

bool DiskCache::remove_unchecked(const std::string& name) {
    MutexLock lock(mutex_);
    is_dropped_now_ = name;
    const bool is_free =
        check_ended_.wait_for(lock, kCheckEndsWithin, [&]() REQUIRES(mutex_) { return is_checked_now_ != name; });
    lock.unlock();
    const bool is_removed = is_free && remove_kept(config_.directory, name);
    lock.lock();
    is_dropped_now_.clear();
    return is_removed;
}

void DiskCache::check_later(std::shared_ptr<KeptFileOnDisk> file) {
    if (!checks_files_ || is_ending_) {
        return;
    }
    // The file may become that of another version meanwhile.
    std::string name = file->name();
    {
        const MutexLock lock(mutex_);
        if (to_check_.size() >= kMostToCheck || !to_check_.insert(name).second) {
            return;
        }
    }
    checks_.post([this, file = std::move(file), name = std::move(name)]() mutable {
        {
            const MutexLock lock(mutex_);
            to_check_.erase(name);
        }
        if (!is_ending_) {
            check(std::move(file));
        }
    });
}

std::shared_ptr<KeptFile> DiskCache::file(const ObjectInfo& object, bool is_encoded, std::uint64_t size) {
    const std::optional<KeptVersion> version = version_of(object, is_encoded);
    if (!version) {
        return nullptr;
    }
    KeptFileOwner& owner = *this;
    auto file = std::make_shared<KeptFileOnDisk>(owner, *version, size);
    add_user(version->file_name(), file);
    return file;
}

void DiskCache::add_user(const std::string& name, const std::shared_ptr<KeptFileOnDisk>& user) {
    const MutexLock lock(mutex_);
    if (users_.size() >= swept_at_) {
        std::erase_if(users_, [](const auto& each) { return each.second.expired(); });
        swept_at_ = std::max(swept_at_, 2 * users_.size());
    }
    users_.emplace(name, user);
}

bool DiskCache::may_have(const std::string& etag) const {
    const std::string begin = file_name_prefix(config_.store, sent_.in_bucket(etag));
    const MutexLock lock(mutex_);
    return config_.is_alone || known_.contains(begin);
}

void DiskCache::has_made(const std::string& name) {
    const MutexLock lock(mutex_);
    known_.insert(name.substr(0, name.find('-') + 1));
}

void DiskCache::whole_size(const ObjectInfo& object, bool is_encoded, Size done) {
    const std::optional<KeptVersion> version = version_of(object, is_encoded);
    if (!version || is_failing()) {
        done(std::nullopt);
        return;
    }
    read_in_time([this, version = *version,
                  done]() -> DiskThreads::Deliver { return [size = whole_size_now(version), done] { done(size); }; },
                 [done] { done(std::nullopt); });
}

std::optional<std::uint64_t> DiskCache::whole_size_now(const KeptVersion& version) {
    const std::optional<std::uint64_t> size = size_on_disk(config_.directory, version);
    KeptFileOwner& owner = *this;
    return size && std::make_shared<KeptFileOnDisk>(owner, version, *size)->is_whole() ? size : std::nullopt;
}

void DiskCache::bytes_kept(const ObjectInfo& object, Kept done) {
    if (is_failing() || !may_have(object.etag)) {
        done(0);
        return;
    }
    read_in_time([this, object,
                  done]() -> DiskThreads::Deliver { return [bytes = bytes_kept_now(object), done] { done(bytes); }; },
                 [done] { done(0); });
}

std::uint64_t DiskCache::bytes_kept_now(const ObjectInfo& object) {
    std::uint64_t bytes = 0;
    KeptFileOwner& owner = *this;
    for (const bool is_encoded : {false, true}) {
        const auto version = version_of(object, is_encoded);
        if (const auto size = version ? size_on_disk(config_.directory, *version) : std::nullopt) {
            bytes += std::make_shared<KeptFileOnDisk>(owner, version->file_name(), version->header(*size), *size)
                         ->bytes_kept();
        }
    }
    return bytes;
}

// On the writing thread, after what is still to be written of the object.
void DiskCache::drop(const ObjectInfo& object, std::function<void(bool)> done) {
    if (config_.dropped) {
        config_.dropped(object.key);
    }
    if (!may_have(object.etag)) {
        done(true);
        return;
    }
    writes_.within(
        config_.answers_within,
        [this, object, done]() -> DiskThreads::Deliver {
            return [is_dropped = drop_now(object), done] { done(is_dropped); };
        },
        [done] { done(false); });
}

bool DiskCache::drop_now(const ObjectInfo& object) {
    close_idle();
    bool is_dropped = true;
    for (const bool is_encoded : {false, true}) {
        const auto version = version_of(object, is_encoded);
        if (!version || !size_on_disk(config_.directory, *version)) {
            continue;
        }
        const std::uint64_t bytes = bytes_taken(config_.directory, version->file_name());
        if (remove_unchecked(version->file_name())) {
            bytes_held_.store(bytes_held_.load() - std::min(bytes, bytes_held_.load()));
        } else {
            is_dropped = false;
        }
    }
    return is_dropped;
}

void DiskCache::read_in_time(std::function<DiskThreads::Deliver()> read, std::function<void()> late) {
    reads_.within(config_.answers_within, std::move(read), [this, late = std::move(late)] {
        failed("read", config_.directory, ETIMEDOUT);
        late();
    });
}

void DiskCache::post_write(std::function<void()> write) {
    if (waiting_behind_.fetch_add(1) >= kMostWaitingBehind) {
        waiting_behind_.fetch_sub(1);
        return;
    }
    writes_.post([this, write = std::move(write)] {
        write();
        waiting_behind_.fetch_sub(1);
    });
}

ObjectInfo DiskCache::in_bucket(ObjectInfo object) const {
    object.etag = sent_.in_bucket(object.etag);
    return object;
}

std::optional<KeptVersion> DiskCache::version_of(const ObjectInfo& object, bool is_encoded) const {
    return kept_version(config_.store, in_bucket(object), is_encoded);
}

std::shared_ptr<FileBeingKept> DiskCache::begin() {
    KeptFileOwner& owner = *this;
    return std::make_shared<FileBeingKeptOnDisk>(
        owner, [this](const ObjectInfo& object, bool is_encoded) { return version_of(object, is_encoded); });
}

bool DiskCache::write_later(std::function<void()> write) {
    if (waiting_.fetch_add(1) >= config_.most_waiting) {
        waiting_.fetch_sub(1);
        left_out_.fetch_add(1, std::memory_order_relaxed);
        return false;
    }
    writes_.post([this, write = std::move(write)] {
        write();
        waiting_.fetch_sub(1);
    });
    return true;
}

bool DiskCache::is_before(const std::atomic<SteadyTime::rep>& time) const {
    const SteadyTime::rep until = time.load();
    return until != 0 && clock_.now().time_since_epoch().count() < until;
}

void DiskCache::failed(const char* action, const std::string& path, int errno_value) {
    const bool is_full = errno_value == ENOSPC || errno_value == EDQUOT;
    (is_full ? full_until_ : left_alone_until_).store((clock_.now() + kLeftAlone).time_since_epoch().count());
    const std::string what = format("cannot {} {}: {}", action, escaped(path),
                                    errno_value == ETIMEDOUT ? "the disk does not answer" : std::strerror(errno_value));
    {
        const MutexLock lock(mutex_);
        if (!std::exchange(failure_, what).empty()) {
            return;
        }
    }
    if (is_full && !config_.is_alone && bytes_held_.load() <= config_.size) {
        // Other programs have filled the disk.
        post_write([this] { make_room_now(bytes_held_.load() / 8 * 7); });
    }
    log_warning(format("--cache-dir {} {} for now: {}", escaped(config_.directory),
                       is_full ? "takes nothing" : "is not used", what));
}

void DiskCache::has_opened(std::weak_ptr<KeptFileOnDisk> file) {
    // The files that are to be closed are closed without the mutex.
    std::vector<std::shared_ptr<KeptFileOnDisk>> opened;
    std::vector<std::shared_ptr<KeptFileOnDisk>> closes;
    {
        const MutexLock lock(mutex_);
        for (const auto& each : std::exchange(open_, {})) {
            if (std::shared_ptr<KeptFileOnDisk> there = each.lock()) {
                opened.push_back(std::move(there));
            }
        }
        std::size_t open = opened.size() + 1;
        for (const std::shared_ptr<KeptFileOnDisk>& each : opened) {
            if (open > kMostOpen && (!each->is_held() || open > most_in_use_)) {
                closes.push_back(each);
                --open;
            } else {
                open_.push_back(each);
            }
        }
        open_.push_back(std::move(file));
    }
    for (const std::shared_ptr<KeptFileOnDisk>& each : closes) {
        each->close();
    }
}

void DiskCache::found_damage(const std::string& path) {
    if (damaged_.fetch_add(1) == 0) {
        log_warning(format("{} is damaged; fetching the damaged parts again", escaped(path)));
    }
}

void DiskCache::count_written(std::uint64_t bytes) {
    bytes_written_.fetch_add(bytes, std::memory_order_relaxed);
    if (is_too_large_) {
        // The files still exceed the limit, as far as is known: that is logged once.
        return;
    }
    const MutexLock lock(mutex_);
    failure_.clear();
}

void DiskCache::takes_room(std::uint64_t named, std::int64_t unnamed) {
    unnamed_ += unnamed;
    const std::uint64_t more = named + static_cast<std::uint64_t>(std::max<std::int64_t>(unnamed, 0));
    bytes_held_.fetch_add(more, std::memory_order_relaxed);
    if (more > 0 && unlooked_.fetch_add(more) + more > look_after_) {
        make_room_now(config_.size);
    }
}

void DiskCache::note_what_is_there() {
    for (const KeptOnDisk& each : list_kept(config_.directory)) {
        has_made(each.name);
    }
}

// Files that are open only because they have been read may be removed, too.
void DiskCache::close_idle() {
    std::deque<std::weak_ptr<KeptFileOnDisk>> open;
    {
        const MutexLock lock(mutex_);
        open = open_;
    }
    for (const auto& each : open) {
        if (const std::shared_ptr<KeptFileOnDisk> file = each.lock()) {
            file->close_if_idle();
        }
    }
}

void DiskCache::make_room_now(std::uint64_t size) {
    unlooked_.store(0);
    close_idle();
    const auto unnamed = static_cast<std::uint64_t>(std::max<std::int64_t>(unnamed_.load(), 0));
    const std::uint64_t held = make_room(config_.directory, size - std::min(size, unnamed)) + unnamed;
    bytes_held_.store(held);
    note_what_is_there();
    is_too_large_ = held > config_.size;
    if (is_too_large_) {
        // All files are in use. The first write after the pause scans again.
        unlooked_.store(look_after_);
        failed("make room in", config_.directory, ENOSPC);
    }
}

DiskCacheStatistics DiskCache::statistics() const {
    DiskCacheStatistics counts;
    counts.bytes_read = bytes_read_.load();
    counts.bytes_written = bytes_written_.load();
    counts.bytes_held = bytes_held_.load();
    counts.frames_left_out = left_out_.load();
    counts.frames_damaged = damaged_.load();
    if (is_full()) {
        const MutexLock lock(mutex_);
        counts.failure = failure_;
    }
    return counts;
}

}  // namespace ckptfs
