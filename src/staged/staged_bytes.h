// SPDX-License-Identifier: Apache-2.0
// The bytes of one file that are changed in place: an unlinked, sparse file in --staging-dir, made with the first byte.
// Its disk space is freed when it is destroyed.
//
// Every byte is checked on its way back: of each page that has been written to, a CRC32C is kept in memory.
//
// Ownership: shared by the file being written and by reads under way.
// Threads: all functions may be called from any thread; reads are of bytes that have been written. All of them wait for
// the disk, and for a write under way.
#pragma once

#include <array>
#include <cstdint>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "base/file_descriptor.h"
#include "ckptfs/bytes.h"
#include "ckptfs/status.h"

namespace ckptfs {

class StagedBytes {
public:
    // `name`: that of the file, for messages.
    StagedBytes(std::string directory, std::string name) : directory_(std::move(directory)), name_(std::move(name)) {}

    // ENOSPC or EDQUOT if the disk takes no more, else EIO.
    Status write(std::uint64_t offset, ByteSpan bytes);
    // EIO if the bytes are not those that were written.
    Status read(std::uint64_t offset, MutableByteSpan target) const;
    // Drops what lies after `size`, and frees its disk space.
    void truncate(std::uint64_t size);
    // Frees the disk space of whole pages before `offset`, which are not read any more.
    void release_before(std::uint64_t offset);

private:
    // A small write reads its page; a smaller page takes more memory for checksums, which is 0.06 % of what is staged.
    static constexpr std::size_t kPageSize = std::size_t{64} << 10;
    using Page = std::array<std::byte, kPageSize>;

    // Bytes of one page.
    struct PageRange {
        std::uint64_t page = 0;
        std::size_t begin = 0;
        std::size_t end = 0;

        [[nodiscard]] std::uint64_t offset() const { return page * kPageSize + begin; }
        [[nodiscard]] std::size_t size() const { return end - begin; }
        [[nodiscard]] bool whole() const { return size() == kPageSize; }
    };
    // The part of `size` bytes from `offset` that lies in the first page.
    [[nodiscard]] static PageRange first_page(std::uint64_t offset, std::size_t size);

    // These are called with the mutex held.
    Status write_page(const PageRange& range, ByteSpan bytes);
    // `page` has kPageSize bytes; those that were never written are zeros.
    Status read_page(std::uint64_t index, MutableByteSpan page) const;
    [[nodiscard]] int read_unchecked(std::uint64_t offset, MutableByteSpan target) const;
    [[nodiscard]] Failure cannot_write(int errno_value) const;

    const std::string directory_;
    const std::string name_;

    // Not a Mutex: reads go side by side, and base/mutex.h has none for that.
    mutable std::shared_mutex mutex_;
    // Guarded by mutex_.
    FileDescriptor file_;
    // CRC32C of each page that has been written to.
    std::unordered_map<std::uint64_t, std::uint32_t> checksums_;
    // What was given up may still be in the file: pages without a checksum are zeros all the same.
    bool space_stays_ = false;
};

}  // namespace ckptfs
