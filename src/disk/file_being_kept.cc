// SPDX-License-Identifier: Apache-2.0
#include "disk/file_being_kept.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string>
#include <utility>

#include "base/unlinked_file.h"
#include "base/xxhash.h"
#include "ckptfs/codec.h"

namespace ckptfs {

// Closes the file on the writing thread, as freeing its blocks may take long.
FileBeingKeptOnDisk::~FileBeingKeptOnDisk() {
    owner_.takes_room(0, -taken_.load());
    if (file_) {
        owner_.post_write([file = std::make_shared<FileDescriptor>(std::move(file_))] { file->reset(); });
    }
}

void FileBeingKeptOnDisk::add(std::uint64_t frame, Payload bytes) {
    std::uint64_t number = 0;
    {
        const MutexLock lock(mutex_);
        number = ++last_number_;
        frames_[frame] = Frame{number, bytes.size(), {}};
        ++waiting_;
    }
    const bool is_queued =
        !owner_.is_full() && owner_.write_later([self = shared_from_this(), frame, number, bytes = std::move(bytes)] {
            self->write(frame, number, bytes);
            // At once, as a rename may wait behind this write.
            if (self->was_the_last()) {
                self->give_name();
            }
        });
    if (!is_queued) {
        {
            const MutexLock lock(mutex_);
            frames_.erase(frame);
        }
        if (was_the_last()) {
            owner_.post_write([self = shared_from_this()] { self->give_name(); });
        }
    }
}

void FileBeingKeptOnDisk::forget(std::uint64_t begin, std::uint64_t end) {
    const MutexLock lock(mutex_);
    const std::uint64_t last = end > std::numeric_limits<std::uint64_t>::max() - kFrameSize
                                   ? std::numeric_limits<std::uint64_t>::max()
                                   : (end + kFrameSize - 1) / kFrameSize;
    frames_.erase(frames_.lower_bound(begin / kFrameSize), frames_.lower_bound(last));
}

void FileBeingKeptOnDisk::finish(const ObjectInfo& object, bool is_encoded, std::uint64_t size) {
    bool is_written = false;
    {
        const MutexLock lock(mutex_);
        finished_ = Finished{object, is_encoded, size};
        is_written = waiting_ == 0;
    }
    if (is_written) {
        owner_.post_write([self = shared_from_this()] { self->give_name(); });
    }
}

bool FileBeingKeptOnDisk::was_the_last() {
    const MutexLock lock(mutex_);
    return --waiting_ == 0 && finished_.has_value();
}

int FileBeingKeptOnDisk::file() {
    {
        const MutexLock lock(mutex_);
        if (file_) {
            return file_.get();
        }
    }
    // Without the mutex, which add() takes.
    FileDescriptor made(::open(owner_.directory().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR));
    // Not every file system has files without a name.
    if (!made && errno != EOPNOTSUPP && errno != EISDIR) {
        owner_.failed("make a file in", owner_.directory(), errno);
    }
    const MutexLock lock(mutex_);
    file_ = std::move(made);
    return file_.get();
}

void FileBeingKeptOnDisk::write(std::uint64_t frame, std::uint64_t number, const Payload& bytes) {
    const auto is_the_latest = [&]() REQUIRES(mutex_) {
        const auto found = frames_.find(frame);
        return found != frames_.end() && found->second.number == number;
    };
    {
        const MutexLock lock(mutex_);
        if (!is_the_latest()) {
            return;
        }
    }
    const int to = owner_.is_full() ? -1 : file();
    const int error = to < 0 ? EBADF : write_all(to, bytes, frame * kFrameSize);
    if (to >= 0 && error != 0) {
        owner_.failed("write", owner_.directory(), error);
    }
    const std::uint64_t hash = error == 0 ? xxh3_long(bytes) : 0;
    if (error == 0) {
        owner_.count_written(bytes.size());
        taken_ += static_cast<std::int64_t>(bytes.size());
        owner_.takes_room(0, static_cast<std::int64_t>(bytes.size()));
    }
    const MutexLock lock(mutex_);
    if (is_the_latest()) {
        if (error == 0) {
            frames_[frame].hash = hash;
        } else {
            frames_.erase(frame);
        }
    }
}

// Hashes of the written frames that are whole in a file of this size, by frame.
std::map<std::uint64_t, std::uint64_t> FileBeingKeptOnDisk::hashes_of(std::uint64_t size) const {
    std::map<std::uint64_t, std::uint64_t> hashes;
    const MutexLock lock(mutex_);
    for (const auto& [frame, written] : frames_) {
        const std::uint64_t begin = frame * kFrameSize;
        if (written.hash && begin < size && written.size == std::min<std::uint64_t>(kFrameSize, size - begin)) {
            hashes.emplace(frame, *written.hash);
        }
    }
    return hashes;
}

void FileBeingKeptOnDisk::give_name() {
    Finished finished;
    FileDescriptor data;
    {
        const MutexLock lock(mutex_);
        finished = *finished_;
        data = std::move(file_);
    }
    const std::optional<KeptVersion> version = name_version_(finished.object, finished.is_encoded);
    const auto hashes = hashes_of(finished.size);
    if (!version || !data || hashes.empty()) {
        return;
    }
    const auto made = std::make_shared<KeptFileOnDisk>(owner_, *version, finished.size);
    if (made->make_of(data.get(), hashes)) {
        const std::int64_t taken = taken_.exchange(0);
        owner_.takes_room(static_cast<std::uint64_t>(taken), -taken);
        owner_.check_later(made);
    }
}

}  // namespace ckptfs
