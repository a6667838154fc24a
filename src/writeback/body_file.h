// SPDX-License-Identifier: Apache-2.0
// A file with the bytes of an object, or of several of its parts, that is not in the bucket yet.
//
// Bytes are checksummed when they are written and verified when they are read: a disk that returns wrong bytes causes
// an error, never a wrong object.
//
// Ownership: shared by the changes that name it. The file is removed with the last of them, unless keep() was called.
// Threads: all functions may be called from any thread, several at once; they wait for the disk.
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
    // The file has mode 0600.
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
    // End of the last write in the file, in bytes: gaps for alignment and writes under way are included.
    [[nodiscard]] std::uint64_t size() const { return end_; }

    // Appends `bytes`. The disk begins to take them at once; they are durable only after sync(). Large writes bypass
    // the page cache where the filesystem supports that. If the disk is full, tries again as long as `make_room` finds
    // something to remove.
    Result<BodyPiece> write(const Payload& bytes, const std::function<bool()>& make_room = nullptr);
    // Makes all writes durable. Fails for good after a write or a sync has failed: the kernel may have dropped what it
    // could not write.
    Status sync();
    // Reads block number `block` of the piece, verified; `target` is as large as the block. Opens the file each time.
    Status read(const BodyPiece& piece, std::uint64_t block, MutableByteSpan target) const;
    // Keeps the file for the next mount: it is not removed with this object.
    void keep() { is_kept_ = true; }

    [[nodiscard]] static std::string path_of(const std::string& directory, std::uint64_t number);
    // The number in a body file's name; empty for any other name.
    [[nodiscard]] static std::optional<std::uint64_t> number_of(std::string_view name);

private:
    using Descriptor = std::shared_ptr<const FileDescriptor>;

    [[nodiscard]] Failure failed(int errno_value, const char* what) const;
    [[nodiscard]] std::uint64_t place_for(std::uint64_t size);
    // Returns 0 or an errno.
    [[nodiscard]] int put(const Payload& bytes, std::uint64_t offset);
    // Null with errno set where the file cannot be opened.
    [[nodiscard]] Descriptor open_now(int flags) const;
    // A descriptor that uses the page cache; null with errno set where there is none.
    [[nodiscard]] Descriptor for_writing() EXCLUDES(mutex_);
    // A descriptor that bypasses the page cache; null where it cannot be opened.
    [[nodiscard]] Descriptor past_cache() EXCLUDES(mutex_);

    const std::string path_;
    const std::uint64_t number_;
    mutable Mutex mutex_;
    // Both are open only while written bytes are not flushed: thousands of files may wait to be sent.
    Descriptor file_ GUARDED_BY(mutex_);
    Descriptor past_cache_ GUARDED_BY(mutex_);
    std::atomic<bool> refuses_direct_ = false;
    std::atomic<std::uint64_t> end_;
    std::atomic<bool> is_kept_ = false;
    // The errno of a failed write or sync; 0 if there was none.
    std::atomic<int> failed_ = 0;
};

// CRC-32C of all bytes of a piece.
[[nodiscard]] std::uint32_t checksum_of(const BodyPiece& piece);

// The number of checksum blocks of a piece of `size` bytes, and the size of one of them.
[[nodiscard]] inline std::uint64_t checksum_blocks(std::uint64_t size) {
    return (size + kChecksumBlock - 1) / kChecksumBlock;
}
[[nodiscard]] inline std::uint64_t checksum_block_size(std::uint64_t size, std::uint64_t block) {
    return std::min(kChecksumBlock, size - block * kChecksumBlock);
}

}  // namespace ckptfs
