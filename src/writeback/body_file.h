// SPDX-License-Identifier: Apache-2.0
// A file with the bytes of an object, or of several of its parts, that is not in the bucket yet.
//
// What is written is summed up on the way, and compared when it is read: a disk that returns other bytes than it was
// given makes an error of them, never an object.
//
// Ownership: shared by the changes that name it; it is opened anew for what is read of it. It is removed with the last
// of them, unless it is kept for the next mount. Threads: all functions may be called from any thread, several at once;
// they wait for the disk.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "ckptfs/bytes.h"
#include "ckptfs/status.h"
#include "writeback/room_on_disk.h"
#include "writeback/unsent_change.h"

namespace ckptfs {

class BodyFile {
public:
    // For this user only.
    static Result<std::shared_ptr<BodyFile>> create(const std::string& directory, std::uint64_t number);
    static Result<std::shared_ptr<BodyFile>> open(const std::string& directory, std::uint64_t number);
    BodyFile(std::string path, FileDescriptor file, std::uint64_t number, std::uint64_t size)
        : path_(std::move(path)),
          number_(number),
          file_(file ? std::make_shared<const FileDescriptor>(std::move(file)) : nullptr),
          end_(size) {}
    ~BodyFile();
    BodyFile(const BodyFile&) = delete;
    BodyFile& operator=(const BodyFile&) = delete;

    [[nodiscard]] std::uint64_t number() const { return number_; }
    // Of the disk, as far as it is written.
    [[nodiscard]] std::uint64_t size() const { return end_; }

    // Behind all that was written before. The disk begins to take it, and has it for sure after sync(). What is large
    // goes past the page cache where the filesystem can do that. Where the disk is full, it is tried again for as long
    // as `make_room` finds something to remove.
    Result<BodyPiece> write(const Payload& bytes, const std::function<bool()>& make_room = nullptr);
    // Once it has failed it fails for good: the system may have given up what it could not write.
    Status sync();
    // The block of a piece with this number; `target` is as large as the block.
    Status read(const BodyPiece& piece, std::uint64_t block, MutableByteSpan target) const;
    // It is needed after this process has ended.
    void keep() { is_kept_ = true; }

    [[nodiscard]] static std::string path_of(const std::string& directory, std::uint64_t number);
    // Empty where the name is not one of a body file.
    [[nodiscard]] static std::optional<std::uint64_t> number_of(std::string_view name);

private:
    using Descriptor = std::shared_ptr<const FileDescriptor>;

    [[nodiscard]] Failure failed(int errno_value, const char* what) const;
    [[nodiscard]] std::uint64_t place_for(std::uint64_t size);
    // 0, or an errno.
    [[nodiscard]] int put(const Payload& bytes, std::uint64_t offset);
    // Through the page cache; null with errno set where it cannot be opened.
    [[nodiscard]] Descriptor open_now(int flags) const;
    [[nodiscard]] Descriptor for_writing() EXCLUDES(mutex_);
    // Null where there is none.
    [[nodiscard]] Descriptor past_cache() EXCLUDES(mutex_);

    const std::string path_;
    const std::uint64_t number_;
    mutable Mutex mutex_;
    // Both are open while something is written that is not flushed, and no longer: thousands of files may wait to be
    // sent.
    Descriptor file_ GUARDED_BY(mutex_);
    Descriptor past_cache_ GUARDED_BY(mutex_);
    std::atomic<bool> refuses_direct_ = false;
    std::atomic<std::uint64_t> end_;
    std::atomic<bool> is_kept_ = false;
    // An errno.
    std::atomic<int> failed_ = 0;
};

// CRC-32C of all of its bytes.
[[nodiscard]] std::uint32_t checksum_of(const BodyPiece& piece);

// Of a piece: how many there are, and how many bytes this one has.
[[nodiscard]] inline std::uint64_t checksum_blocks(std::uint64_t size) {
    return (size + kChecksumBlock - 1) / kChecksumBlock;
}
[[nodiscard]] inline std::uint64_t checksum_block_size(std::uint64_t size, std::uint64_t block) {
    return std::min(kChecksumBlock, size - block * kChecksumBlock);
}

}  // namespace ckptfs
