// SPDX-License-Identifier: Apache-2.0
#include "staged/staged_bytes.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/digest.h"
#include "base/text.h"
#include "base/unlinked_file.h"
#include "ckptfs/log.h"

namespace ckptfs {

StagedBytes::PageRange StagedBytes::first_page(std::uint64_t offset, std::size_t size) {
    const std::size_t begin = offset % kPageSize;
    return {offset / kPageSize, begin, std::min(begin + size, kPageSize)};
}

Status StagedBytes::write(std::uint64_t offset, ByteSpan bytes) {
    const std::unique_lock lock(mutex_);
    if (!file_) {
        file_ = open_unlinked(directory_);
        if (!file_) {
            return cannot_write(errno);
        }
    }
    while (!bytes.empty()) {
        const PageRange range = first_page(offset, bytes.size());
        if (Status written = write_page(range, bytes.first(range.size())); !written) {
            return written;
        }
        offset += range.size();
        bytes = bytes.subspan(range.size());
    }
    return {};
}

Status StagedBytes::write_page(const PageRange& range, ByteSpan bytes) {
    Page page;
    if (!range.whole()) {
        if (Status read = read_page(range.page, page); !read) {
            return read;
        }
    }
    MutableByteSpan changed = MutableByteSpan(page).subspan(range.begin, range.size());
    std::copy(bytes.begin(), bytes.end(), changed.begin());
    std::uint64_t place = range.offset();
    if (space_stays_ && !checksums_.contains(range.page)) {
        // What was given up is still in the file around the piece.
        changed = page;
        place = range.page * kPageSize;
    }
    Payload payload;
    payload.append(Slice{nullptr, changed});
    const int problem = write_all(file_.get(), std::move(payload), place);
    // What lies around a piece that was written in part is still good.
    if (problem == 0 || read_unchecked(place, changed) == 0) {
        checksums_[range.page] = crc32c(page);
    }
    return problem == 0 ? Status() : cannot_write(problem);
}

Status StagedBytes::read(std::uint64_t offset, MutableByteSpan target) const {
    const std::shared_lock lock(mutex_);
    Page page;
    while (!target.empty()) {
        const PageRange range = first_page(offset, target.size());
        const MutableByteSpan wanted = target.first(range.size());
        if (Status read = read_page(range.page, range.whole() ? wanted : MutableByteSpan(page)); !read) {
            return read;
        }
        if (!range.whole()) {
            std::memcpy(wanted.data(), page.data() + range.begin, wanted.size());
        }
        offset += range.size();
        target = target.subspan(range.size());
    }
    return {};
}

Status StagedBytes::read_page(std::uint64_t index, MutableByteSpan page) const {
    const auto checksum = checksums_.find(index);
    if (checksum == checksums_.end()) {
        std::fill(page.begin(), page.end(), std::byte{});
        return {};
    }
    const int problem = read_unchecked(index * kPageSize, page);
    if (problem == 0 && crc32c(page) == checksum->second) {
        return {};
    }
    return failure(
        EIO, format("{}: data read back from --staging-dir {} is corrupted ({}); check that "
                    "disk, and write the file again",
                    escaped(name_), escaped(directory_), problem == 0 ? "another checksum" : std::strerror(problem)));
}

// 0, or an errno; what lies after the end of the file is zeros.
int StagedBytes::read_unchecked(std::uint64_t offset, MutableByteSpan target) const {
    std::fill(target.begin(), target.end(), std::byte{});
    const int problem = read_all(file_.get(), target, offset);
    return problem == ENODATA ? 0 : problem;
}

void StagedBytes::truncate(std::uint64_t size) {
    const std::unique_lock lock(mutex_);
    if (!file_) {
        return;
    }
    const PageRange kept{size / kPageSize, 0, size % kPageSize};
    Page last{};
    const bool good = kept.size() == 0 || read_page(kept.page, last).has_value();
    const bool cuts = kept.size() > 0 && good && checksums_.contains(kept.page);
    // A disk that does not take space back has it back with the file.
    if (::ftruncate(file_.get(), static_cast<off_t>(size)) != 0) {
        log_warning(format("{}: --staging-dir {} keeps its space: {}", escaped(name_), escaped(directory_),
                           std::strerror(errno)));
        space_stays_ = true;
        const Page zeros{};
        Payload tail;
        tail.append(Slice{nullptr, cuts ? ByteSpan(zeros).subspan(kept.end) : ByteSpan()});
        // If this fails, too, the page does not have its checksum.
        static_cast<void>(write_all(file_.get(), std::move(tail), size));
    }
    std::erase_if(checksums_, [&](const auto& entry) { return entry.first >= kept.page + (kept.size() > 0 ? 1 : 0); });
    if (cuts) {
        std::fill(last.begin() + static_cast<std::ptrdiff_t>(kept.end), last.end(), std::byte{});
        checksums_[kept.page] = crc32c(last);
    }
}

void StagedBytes::release_before(std::uint64_t offset) {
    const std::unique_lock lock(mutex_);
    const std::uint64_t pages = offset / kPageSize;
    if (!file_ || pages == 0) {
        return;
    }
    // A disk that does not take space back has it back with the file.
    if (::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                    static_cast<off_t>(pages * kPageSize)) != 0) {
        space_stays_ = true;
    }
    std::erase_if(checksums_, [pages](const auto& entry) { return entry.first < pages; });
}

Failure StagedBytes::cannot_write(int errno_value) const {
    return failure(
        errno_value == ENOSPC || errno_value == EDQUOT ? errno_value : EIO,
        format("write {}: --staging-dir {} takes no more of what is changed in this file before it is closed: "
               "{}; make room there or use another directory, and write the file again",
               escaped(name_), escaped(directory_), std::strerror(errno_value)));
}

}  // namespace ckptfs
