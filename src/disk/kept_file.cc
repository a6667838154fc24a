// SPDX-License-Identifier: Apache-2.0
#include "disk/kept_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/unlinked_file.h"
#include "base/xxhash.h"
#include "ckptfs/codec.h"
#include "disk/disk_space.h"

namespace ckptfs {

namespace {

std::uint64_t record_offset(std::uint64_t frame) {
    return kIndexHeaderSize + frame * kRecordSize;
}

std::uint64_t frames_of(std::uint64_t size) {
    return (size + kFrameSize - 1) / kFrameSize;
}

// Not if the size stays: ftruncate(2) would change the modification time.
bool make_size(int file, std::uint64_t size) {
    const std::optional<DataState> state = data_state(file);
    return (state && state->size == size) || ::ftruncate(file, static_cast<off_t>(size)) == 0;
}

Payload payload_of(ByteSpan bytes) {
    Payload payload;
    payload.append(Slice{nullptr, bytes});
    return payload;
}

}  // namespace

KeptFileOnDisk::KeptFileOnDisk(KeptFileOwner& owner, const KeptVersion& version, std::uint64_t size)
    : KeptFileOnDisk(owner, version.file_name(), version.header(size), size, true) {}

KeptFileOnDisk::KeptFileOnDisk(KeptFileOwner& owner, std::string name, std::string header, std::uint64_t size)
    : KeptFileOnDisk(owner, std::move(name), std::move(header), size, false) {}

KeptFileOnDisk::KeptFileOnDisk(KeptFileOwner& owner, std::string name, std::string header, std::uint64_t size,
                               bool is_used)
    : owner_(owner),
      size_(size),
      is_used_(is_used),
      named_(std::make_shared<const Named>(Named{std::move(name), std::move(header)})) {}

bool KeptFileOnDisk::may_have(std::uint64_t frame) const {
    if (owner_.is_failing()) {
        return false;
    }
    const MutexLock lock(mutex_);
    return state_ == State::kUnknown || records_.contains(frame);
}

// Reads into the thread's own memory: a late read must not write to `target`, where something else may be by then.
void KeptFileOnDisk::read(std::uint64_t frame, MutableByteSpan target, std::function<void(bool)> done) {
    owner_.read_in_time(
        [self = shared_from_this(), frame, target, done]() -> DiskThreads::Deliver {
            thread_local std::vector<std::byte> own(kFrameSize);
            const MutableByteSpan bytes(own.data(), target.size());
            if (!self->read_now(frame, bytes)) {
                return [done] { done(false); };
            }
            self->owner_.count_read(bytes.size());
            return [bytes, target, done] {
                std::memcpy(target.data(), bytes.data(), bytes.size());
                done(true);
            };
        },
        [done] { done(false); });
}

bool KeptFileOnDisk::read_now(std::uint64_t frame, MutableByteSpan target) {
    const FilesPointer files = owner_.is_failing() ? nullptr : open(false);
    std::optional<std::uint64_t> hash;
    {
        const MutexLock lock(mutex_);
        if (const auto record = records_.find(frame); record != records_.end()) {
            hash = record->second;
        }
    }
    if (files == nullptr || !hash) {
        return false;
    }
    const int error = read_all(files->data.get(), target, frame * kFrameSize);
    // A power cut may have taken the end of the file.
    const bool is_damaged = error == ENODATA || (error == 0 && xxh3_long(target) != *hash);
    if (error != 0 || is_damaged) {
        read_failed(*files, frame, is_damaged);
        const std::string path = data_path(owner_.directory(), name());
        is_damaged ? owner_.found_damage(path) : owner_.failed("read", path, error);
        return false;
    }
    note_use();
    return true;
}

void KeptFileOnDisk::open_checked(std::function<void(int)> done) {
    if (owner_.is_failing()) {
        done(-1);
        return;
    }
    if (!owner_.checked().find(name())) {
        owner_.check_later(shared_from_this());
        done(-1);
        return;
    }
    owner_.read_in_time(
        [self = shared_from_this(), done]() -> DiskThreads::Deliver {
            return [files = self->open_checked_now(), done] { done(files != nullptr ? files->data.get() : -1); };
        },
        [done] { done(-1); });
}

KeptFileOnDisk::FilesPointer KeptFileOnDisk::open_checked_now() {
    FilesPointer files = open(false);
    if (files == nullptr || !is_checked(*files) || !is_whole()) {
        owner_.checked().forget(name());
        return nullptr;
    }
    return files;
}

bool KeptFileOnDisk::is_checked(const Files& files) const {
    const std::optional<DataState> checked = owner_.checked().find(name());
    return checked && checked == data_state(files.data.get());
}

void KeptFileOnDisk::check() {
    const std::string name = this->name();
    const FilesPointer files = is_whole() ? open(false) : nullptr;
    if (files == nullptr || is_checked(*files)) {
        return;
    }
    // Bytes behind the last frame have no hash, and the kernel would show them.
    if (!make_size(files->data.get(), size_)) {
        owner_.failed("cut", data_path(owner_.directory(), name), errno);
        return;
    }
    const std::optional<DataState> before = data_state(files->data.get());
    if (!before) {
        return;
    }
    std::vector<std::byte> bytes(kFrameSize);
    for (std::uint64_t offset = 0; offset < size_; offset += kFrameSize) {
        const std::uint64_t size = std::min<std::uint64_t>(kFrameSize, size_ - offset);
        // Bytes that the kernel could not write exist only in memory, for as long as it keeps them.
        constexpr unsigned kWritten = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
        if (::sync_file_range(files->data.get(), static_cast<off_t>(offset), static_cast<off_t>(size), kWritten) != 0) {
            owner_.failed("write", data_path(owner_.directory(), name), errno);
            return;
        }
        // The kernel tells of bytes that it could not write only once, and may have told another. The hashes are those
        // of what the disk has.
        static_cast<void>(::posix_fadvise(files->data.get(), static_cast<off_t>(offset), static_cast<off_t>(size),
                                          POSIX_FADV_DONTNEED));
        if (owner_.ends_check(name) || !read_now(offset / kFrameSize, MutableByteSpan(bytes.data(), size))) {
            return;
        }
    }
    if (before == data_state(files->data.get())) {
        owner_.checked().note(name, *before);
    }
}

std::shared_ptr<void> KeptFileOnDisk::hold() {
    ++holders_;
    return {nullptr, [self = shared_from_this()](void*) {
                self->note_use();
                --self->holders_;
            }};
}

void KeptFileOnDisk::keep(std::uint64_t frame, Slice bytes) {
    {
        const MutexLock lock(mutex_);
        if (records_.contains(frame) || owner_.is_full() || !being_written_.insert(frame).second) {
            return;
        }
    }
    const bool is_queued = owner_.write_later(
        [self = shared_from_this(), frame, bytes = std::move(bytes)] { self->write(frame, bytes.bytes); });
    if (!is_queued) {
        const MutexLock lock(mutex_);
        being_written_.erase(frame);
    }
}

void KeptFileOnDisk::write(std::uint64_t frame, ByteSpan bytes) {
    const FilesPointer files = owner_.is_full() ? nullptr : open(true);
    bool is_there = false;
    {
        // An earlier process may have kept it.
        const MutexLock lock(mutex_);
        is_there = records_.contains(frame);
    }
    std::optional<std::uint64_t> hash;
    if (files != nullptr && !is_there) {
        hash = xxh3_long(bytes);
        const auto record = encode_record(frame, *hash);
        int error = write_all(files->data.get(), payload_of(bytes), frame * kFrameSize);
        error = error != 0 ? error : write_all(files->index.get(), payload_of(record), record_offset(frame));
        if (error != 0) {
            hash.reset();
            owner_.failed("write", data_path(owner_.directory(), name()), error);
        }
    }
    bool is_the_last = false;
    {
        const MutexLock lock(mutex_);
        being_written_.erase(frame);
        // Otherwise the file has been closed meanwhile: what is opened next may be another one.
        if (hash && files == files_) {
            records_.emplace(frame, *hash);
            is_the_last = records_.size() == frames_of(size_);
        }
    }
    if (is_the_last) {
        owner_.check_later(shared_from_this());
    }
    if (hash) {
        owner_.count_written(bytes.size());
        owner_.takes_room(bytes.size(), 0);
    }
}

bool KeptFileOnDisk::is_whole() {
    if (owner_.is_failing() || open(false) == nullptr) {
        return false;
    }
    const MutexLock lock(mutex_);
    return records_.size() == frames_of(size_);
}

std::uint64_t KeptFileOnDisk::bytes_kept() {
    if (owner_.is_failing() || open(false) == nullptr) {
        return 0;
    }
    const MutexLock lock(mutex_);
    return std::accumulate(records_.begin(), records_.end(), std::uint64_t{0},
                           [this](std::uint64_t bytes, const auto& record) {
                               return bytes + std::min<std::uint64_t>(kFrameSize, size_ - record.first * kFrameSize);
                           });
}

bool KeptFileOnDisk::copy_to(KeptFileOnDisk& copy) {
    const FilesPointer files = open(false);
    std::map<std::uint64_t, std::uint64_t> hashes;
    {
        const MutexLock lock(mutex_);
        hashes.insert(records_.begin(), records_.end());
    }
    if (files == nullptr || hashes.empty()) {
        return false;
    }
    const bool was_checked = is_checked(*files);
    if (!copy.make_of(files->data.get(), hashes)) {
        return false;
    }
    if (const auto state = was_checked ? data_state(files->data.get()) : std::nullopt) {
        owner_.checked().note(copy.name(), *state);
    }
    return true;
}

bool KeptFileOnDisk::make_of(int data, const std::map<std::uint64_t, std::uint64_t>& hashes) {
    const MutexLock one_at_a_time(opening_);
    const std::shared_ptr<const Named> named = this->named();
    const FileDescriptor index = named->header.empty() ? FileDescriptor() : open_index(named->name, true);
    if (!index) {
        return false;
    }
    const std::string path = data_path(owner_.directory(), named->name);
    const std::string from = format("/proc/self/fd/{}", data);
    bool is_new = false;
    if (!make_size(data, size_) || ::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0 ||
        !check_header(named->header, index.get(), is_new)) {
        if (errno != EEXIST) {
            owner_.failed("make", path, errno);
        }
        return false;
    }
    for (const auto& [frame, hash] : hashes) {
        const auto record = encode_record(frame, hash);
        if (const int error = write_all(index.get(), payload_of(record), record_offset(frame)); error != 0) {
            owner_.failed("write", index_path(owner_.directory(), named->name), error);
            return false;
        }
    }
    owner_.has_made(named->name);
    return true;
}

// A disk may fail for a moment and have the frame all the same: this process alone fetches it again. What cannot come
// back stays in any case.
void KeptFileOnDisk::read_failed(const Files& files, std::uint64_t frame, bool is_damaged) {
    if (owner_.is_alone()) {
        return;
    }
    if (is_damaged) {
        forget(files, frame);
        return;
    }
    const MutexLock lock(mutex_);
    records_.erase(frame);
}

void KeptFileOnDisk::forget(const Files& files, std::uint64_t frame) {
    const std::vector<std::byte> nothing(kRecordSize);
    static_cast<void>(write_all(files.index.get(), payload_of(nothing), record_offset(frame)));
    const MutexLock lock(mutex_);
    records_.erase(frame);
}

void KeptFileOnDisk::close() {
    // Closed without the mutex.
    FilesPointer files;
    {
        const MutexLock lock(mutex_);
        files.swap(files_);
        records_.clear();
        state_ = State::kUnknown;
    }
    if (files != nullptr && is_used_) {
        tell_last_use(*files);
    }
}

// Sets the time of the last use, as that of the opening is older. Another process may have set a later one.
void KeptFileOnDisk::tell_last_use(const Files& files) {
    constexpr std::int64_t kNanoseconds = 1'000'000'000;
    const std::int64_t used = last_used_.exchange(0);
    struct stat index {};
    if (used == 0 || ::fstat(files.index.get(), &index) != 0 ||
        used <= index.st_mtim.tv_sec * kNanoseconds + index.st_mtim.tv_nsec) {
        return;
    }
    const std::array<timespec, 2> times{timespec{0, UTIME_OMIT}, timespec{used / kNanoseconds, used % kNanoseconds}};
    static_cast<void>(::futimens(files.index.get(), times.data()));
}

void KeptFileOnDisk::note_use() {
    last_used_ =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
}

void KeptFileOnDisk::becomes(const KeptVersion& version) {
    const auto named = std::make_shared<const Named>(Named{version.file_name(), version.header(size_)});
    // Holds the lock of the old name until that of the new one is held.
    FilesPointer before;
    {
        const MutexLock one_at_a_time(opening_);
        {
            const MutexLock lock(mutex_);
            before = files_;
        }
        close();
        const MutexLock lock(mutex_);
        named_ = named;
    }
    if (is_held()) {
        // The kernel may read the file past this process, so that no read opens it again.
        static_cast<void>(open(false));
    }
}

KeptFileOnDisk::FilesPointer KeptFileOnDisk::open(bool for_writing) {
    const MutexLock one_at_a_time(opening_);
    {
        const MutexLock lock(mutex_);
        if (state_ == State::kOpen || (state_ == State::kAbsent && !for_writing)) {
            return files_;
        }
    }
    const std::shared_ptr<const Named> named = this->named();
    FilesPointer files = named->header.empty() ? nullptr : open_now(*named, for_writing);
    {
        const MutexLock lock(mutex_);
        files_ = files;
        state_ = files != nullptr ? State::kOpen : State::kAbsent;
    }
    if (files != nullptr) {
        owner_.has_opened(weak_from_this());
    }
    return files;
}

KeptFileOnDisk::FilesPointer KeptFileOnDisk::open_now(const Named& named, bool for_writing) {
    auto files = std::make_shared<Files>();
    files->index = open_index(named.name, for_writing);
    if (!files->index) {
        return nullptr;
    }
    const std::string path = data_path(owner_.directory(), named.name);
    files->data = FileDescriptor(
        ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | (for_writing ? O_CREAT : 0), S_IRUSR | S_IWUSR));
    bool is_new = false;
    if (!files->data || !check_header(named.header, files->index.get(), is_new) ||
        (for_writing && !make_size(files->data.get(), size_))) {
        if (errno != ENOENT || for_writing) {
            owner_.failed("open", path, errno);
        }
        return nullptr;
    }
    if (!is_new) {
        load_records(files->index.get());
    }
    if (is_used_) {
        static_cast<void>(::futimens(files->index.get(), nullptr));
    }
    if (for_writing) {
        owner_.has_made(named.name);
    }
    return files;
}

// Takes the lock that keeps the file from being removed.
FileDescriptor KeptFileOnDisk::open_index(const std::string& name, bool for_writing) const {
    const std::string path = index_path(owner_.directory(), name);
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (for_writing ? O_CREAT : 0);
    // The file may be removed before it is locked.
    for (int attempt = 0; attempt < 2; ++attempt) {
        FileDescriptor index(::open(path.c_str(), flags, S_IRUSR | S_IWUSR));
        if (!index) {
            if (errno != ENOENT || for_writing) {
                owner_.failed("open", path, errno);
            }
            return {};
        }
        struct stat status {};
        if (flock(index.get(), LOCK_SH | LOCK_NB) == 0 && fstat(index.get(), &status) == 0 && status.st_nlink > 0) {
            return index;
        }
    }
    return {};
}

// An index with another header was damaged, or cut off when it was created: it begins again, without records.
bool KeptFileOnDisk::check_header(const std::string& header, int index, bool& is_new) {
    std::string found(kIndexHeaderSize, '\0');
    const auto bytes = std::as_writable_bytes(std::span(found));
    is_new = read_all(index, bytes, 0) != 0 || found != header;
    return !is_new || (::ftruncate(index, 0) == 0 && write_all(index, payload_of(as_bytes(header)), 0) == 0);
}

void KeptFileOnDisk::load_records(int index) {
    std::vector<std::byte> records(frames_of(size_) * kRecordSize);
    struct stat status {};
    if (fstat(index, &status) != 0) {
        return;
    }
    const auto there = static_cast<std::uint64_t>(status.st_size);
    records.resize(std::min<std::uint64_t>(records.size(), there > kIndexHeaderSize ? there - kIndexHeaderSize : 0));
    if (read_all(index, records, kIndexHeaderSize) != 0) {
        return;
    }
    const MutexLock lock(mutex_);
    for (std::uint64_t frame = 0; (frame + 1) * kRecordSize <= records.size(); ++frame) {
        const ByteSpan record = ByteSpan(records).subspan(frame * kRecordSize, kRecordSize);
        if (const auto hash = decode_record(frame, record)) {
            records_.emplace(frame, *hash);
        }
    }
}

}  // namespace ckptfs
