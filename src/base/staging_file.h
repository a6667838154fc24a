// SPDX-License-Identifier: Apache-2.0
// Bytes that had to leave memory, in one unlinked file of the staging directory (--staging-dir).
//
// The file is made with the first range and never has a name, so that nothing is left behind however the process ends.
// It is cut into slots of one size; a slot is free again when its range is destroyed. The disk space goes back with
// trim(), once nothing is staged.
//
// Ownership: shared; every range keeps its file.
// Threads: all functions may be called from any thread. write(), read() and trim() wait for the disk; destroying a
// range does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/bytes.h"
#include "ckptfs/status.h"

namespace ckptfs {

class StagingFile;

class StagedRange {
public:
    StagedRange(std::shared_ptr<StagingFile> file, std::uint64_t slot) : file_(std::move(file)), slot_(slot) {}
    ~StagedRange();
    StagedRange(const StagedRange&) = delete;
    StagedRange& operator=(const StagedRange&) = delete;

    // Fills `target` with the bytes from `offset` of the range on. EIO if they cannot be read.
    Status read(std::uint64_t offset, MutableByteSpan target) const;

private:
    friend class StagingFile;

    const std::shared_ptr<StagingFile> file_;
    const std::uint64_t slot_;
};

class StagingFile : public std::enable_shared_from_this<StagingFile> {
public:
    // In bytes: one frame fits.
    static constexpr std::size_t kSlotSize = BufferPool::kBufferSize;

    static std::shared_ptr<StagingFile> create(std::string directory);

    // At most kSlotSize bytes. The error names the directory and what to do.
    Result<std::shared_ptr<const StagedRange>> write(const Payload& bytes);
    // Gives the disk space back if nothing is staged.
    void trim();
    // Whether trim() would give disk space back.
    [[nodiscard]] bool trimmable() const;

    [[nodiscard]] std::size_t slots_in_use() const;

private:
    friend class StagedRange;

    explicit StagingFile(std::string directory) : directory_(std::move(directory)) {}
    Result<int> descriptor();
    [[nodiscard]] Error cannot_write(int errno_value) const;
    std::uint64_t take_slot();
    void free_slot(std::uint64_t slot);

    const std::string directory_;

    mutable Mutex mutex_;
    FileDescriptor file_ GUARDED_BY(mutex_);
    std::vector<std::uint64_t> free_slots_ GUARDED_BY(mutex_);
    std::uint64_t slots_ GUARDED_BY(mutex_) = 0;
};

}  // namespace ckptfs
