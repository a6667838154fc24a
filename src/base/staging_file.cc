// SPDX-License-Identifier: Apache-2.0
#include "base/staging_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "base/unlinked_file.h"
#include "ckptfs/log.h"

namespace ckptfs {
StagedRange::~StagedRange() {
    file_->free_slot(slot_);
}

Status StagedRange::read(std::uint64_t offset, MutableByteSpan target) const {
    const Result<int> file = file_->descriptor();
    if (!file) {
        return failure(file.error());
    }
    if (const int problem = read_all(*file, target, slot_ * StagingFile::kSlotSize + offset); problem != 0) {
        return failure(EIO, format("what was put into --staging-dir {} cannot be read back: {}",
                                   escaped(file_->directory_), std::strerror(problem)));
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
    const MutexLock lock(mutex_);
    if (free_slots_.size() == slots_) {
        closing = std::move(file_);
        free_slots_.clear();
        slots_ = 0;
    }
}

bool StagingFile::trimmable() const {
    const MutexLock lock(mutex_);
    return file_ && free_slots_.size() == slots_;
}

std::size_t StagingFile::slots_in_use() const {
    const MutexLock lock(mutex_);
    return static_cast<std::size_t>(slots_ - free_slots_.size());
}

Result<int> StagingFile::descriptor() {
    {
        const MutexLock lock(mutex_);
        if (file_) {
            return file_.get();
        }
    }
    FileDescriptor opened = open_unlinked(directory_);
    if (!opened) {
        return failure(cannot_write(errno));
    }
    const MutexLock lock(mutex_);
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
    const MutexLock lock(mutex_);
    if (free_slots_.empty()) {
        return slots_++;
    }
    const std::uint64_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
}

void StagingFile::free_slot(std::uint64_t slot) {
    const MutexLock lock(mutex_);
    free_slots_.push_back(slot);
}

}  // namespace ckptfs
