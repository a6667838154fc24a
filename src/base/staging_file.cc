// SPDX-License-Identifier: Apache-2.0
#include "base/staging_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// Linux takes 1,024 in one call (UIO_MAXIOV, linux/uio.h).
constexpr std::size_t kMaxVectors = 1024;

FileDescriptor open_unlinked(const std::string& directory) {
    FileDescriptor file(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (file || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
        return file;
    }
    // A filesystem without O_TMPFILE: the name exists for a moment.
    std::string name = directory + "/ckptfs-XXXXXX";
    file = FileDescriptor(::mkostemp(name.data(), O_CLOEXEC));
    if (file) {
        ::unlink(name.c_str());
    }
    return file;
}

std::vector<iovec> vectors_of(const Payload& bytes) {
    std::vector<iovec> vectors;
    for (const Slice& slice : bytes.slices().first(std::min(kMaxVectors, bytes.slices().size()))) {
        vectors.push_back({const_cast<std::byte*>(slice.bytes.data()), slice.bytes.size()});
    }
    return vectors;
}

// 0, or an errno.
int write_all(int file, Payload bytes, std::uint64_t offset) {
    while (!bytes.empty()) {
        const std::vector<iovec> vectors = vectors_of(bytes);
        const ssize_t written =
            ::pwritev(file, vectors.data(), static_cast<int>(vectors.size()), static_cast<off_t>(offset));
        if (written < 0 && errno != EINTR) {
            return errno;
        }
        if (written > 0) {
            offset += static_cast<std::uint64_t>(written);
            bytes = bytes.subrange(static_cast<std::uint64_t>(written), bytes.size());
        }
    }
    return 0;
}

}  // namespace

StagedRange::~StagedRange() {
    file_->free_slot(slot_);
}

Status StagedRange::read(std::uint64_t offset, MutableByteSpan target) const {
    const Result<int> file = file_->descriptor();
    if (!file) {
        return failure(file.error());
    }
    std::uint64_t place = slot_ * StagingFile::kSlotSize + offset;
    while (!target.empty()) {
        const ssize_t got = ::pread(*file, target.data(), target.size(), static_cast<off_t>(place));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return failure(EIO, format("what was put into --staging-dir {} cannot be read back: {}",
                                       escaped(file_->directory_), got < 0 ? std::strerror(errno) : "it is not there"));
        }
        place += static_cast<std::uint64_t>(got);
        target = target.subspan(static_cast<std::size_t>(got));
    }
    return {};
}

std::shared_ptr<StagingFile> StagingFile::create(std::string directory) {
    return std::shared_ptr<StagingFile>(new StagingFile(std::move(directory)));
}

Result<std::shared_ptr<const StagedRange>> StagingFile::write(const Payload& bytes) {
    auto range = std::make_shared<const StagedRange>(shared_from_this(), take_slot());
    // After the slot: the file is not closed while one is taken.
    const Result<int> file = descriptor();
    if (!file) {
        return failure(file.error());
    }
    if (const int problem = write_all(*file, bytes, range->slot_ * kSlotSize); problem != 0) {
        return failure(cannot_write(problem));
    }
    return range;
}

void StagingFile::trim() {
    FileDescriptor closing;
    const std::lock_guard lock(mutex_);
    if (free_slots_.size() == slots_) {
        closing = std::move(file_);
        free_slots_.clear();
        slots_ = 0;
    }
}

bool StagingFile::trimmable() const {
    const std::lock_guard lock(mutex_);
    return file_ && free_slots_.size() == slots_;
}

std::size_t StagingFile::slots_in_use() const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(slots_ - free_slots_.size());
}

Result<int> StagingFile::descriptor() {
    {
        const std::lock_guard lock(mutex_);
        if (file_) {
            return file_.get();
        }
    }
    FileDescriptor opened = open_unlinked(directory_);
    if (!opened) {
        return failure(cannot_write(errno));
    }
    const std::lock_guard lock(mutex_);
    if (!file_) {
        file_ = std::move(opened);
    }
    return file_.get();
}

Error StagingFile::cannot_write(int errno_value) const {
    Error error;
    error.errno_value = errno_value == ENOSPC || errno_value == EDQUOT ? errno_value : EIO;
    error.message = format(
        "--staging-dir {} takes no more of what has no room in memory: {}; make room there, or use "
        "a larger --max-memory",
        escaped(directory_), std::strerror(errno_value));
    return error;
}

std::uint64_t StagingFile::take_slot() {
    const std::lock_guard lock(mutex_);
    if (free_slots_.empty()) {
        return slots_++;
    }
    const std::uint64_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
}

void StagingFile::free_slot(std::uint64_t slot) {
    const std::lock_guard lock(mutex_);
    free_slots_.push_back(slot);
}

}  // namespace ckptfs
