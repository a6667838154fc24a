// SPDX-License-Identifier: Apache-2.0
#include "writeback/body_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "base/digest.h"
#include "base/direct_write.h"
#include "base/text.h"
#include "base/unlinked_file.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

constexpr std::string_view kEnding = ".body";

// Smaller writes are as fast through the page cache, and two of them may share a page.
constexpr std::uint64_t kSmallestDirect = std::uint64_t{1} << 20;

std::vector<std::uint32_t> checksums_of(const Payload& bytes) {
    std::vector<std::uint32_t> checksums;
    for (std::uint64_t at = 0; at < bytes.size(); at += kChecksumBlock) {
        checksums.push_back(crc32c(bytes.subrange(at, kChecksumBlock)));
    }
    return checksums;
}

}  // namespace

std::uint32_t checksum_of(const BodyPiece& piece) {
    std::uint32_t sum = 0;
    for (std::uint64_t block = 0; block < piece.checksums.size(); ++block) {
        sum = crc32c_combine(sum, piece.checksums[block], checksum_block_size(piece.size, block));
    }
    return sum;
}

std::string BodyFile::path_of(const std::string& directory, std::uint64_t number) {
    return format("{}/{}{}", directory, number, kEnding);
}

std::optional<std::uint64_t> BodyFile::number_of(std::string_view name) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    const bool is_one = error == std::errc{} && std::string_view(end, name.data() + name.size()) == kEnding;
    return is_one ? std::optional(number) : std::nullopt;
}

Result<std::shared_ptr<BodyFile>> BodyFile::create(const std::string& directory, std::uint64_t number) {
    std::string path = path_of(directory, number);
    FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!file) {
        const int error = errno;
        return failure(error, format("cannot create {}: {}", escaped(path), std::strerror(error)));
    }
    return std::make_shared<BodyFile>(std::move(path), std::move(file), number, 0);
}

Result<std::shared_ptr<BodyFile>> BodyFile::open(const std::string& directory, std::uint64_t number) {
    std::string path = path_of(directory, number);
    FileDescriptor file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    struct stat found {};
    if (!file || ::fstat(file.get(), &found) != 0) {
        const int error = errno;
        return failure(error, format("cannot open {}: {}", escaped(path), std::strerror(error)));
    }
    return std::make_shared<BodyFile>(std::move(path), FileDescriptor(), number,
                                      static_cast<std::uint64_t>(found.st_size));
}

BodyFile::~BodyFile() {
    if (!is_kept_ && ::unlink(path_.c_str()) != 0 && errno != ENOENT) {
        log_warning(format("cannot remove {}: {}", escaped(path_), std::strerror(errno)));
    }
}

Failure BodyFile::failed(int errno_value, const char* what) const {
    return failure(errno_value, format("cannot {} {}: {}", what, escaped(path_), std::strerror(errno_value)));
}

Result<BodyPiece> BodyFile::write(const Payload& bytes, const std::function<bool()>& make_room) {
    BodyPiece piece;
    piece.place = BodyPiece::Place::kFile;
    piece.size = bytes.size();
    piece.file = number_;
    piece.offset = place_for(bytes.size());
    piece.checksums = checksums_of(bytes);
    int error = 0;
    retry_with_room(make_room, [&] {
        error = put(bytes, piece.offset);
        return !is_lack_of_room(error);
    });
    if (error != 0) {
        failed_ = error;
        return failed(error, "write");
    }
    return piece;
}

// A direct write begins at an aligned offset, so that it shares no page with what was written before.
std::uint64_t BodyFile::place_for(std::uint64_t size) {
    const std::uint64_t alignment = size < kSmallestDirect ? 1 : kDirectAlignment;
    std::uint64_t end = end_;
    std::uint64_t begin = end;
    do {
        begin = (end + alignment - 1) / alignment * alignment;
    } while (!end_.compare_exchange_weak(end, begin + size));
    return begin;
}

int BodyFile::put(const Payload& bytes, std::uint64_t offset) {
    const Descriptor direct = bytes.size() < kSmallestDirect ? nullptr : past_cache();
    std::uint64_t written = 0;
    if (direct != nullptr) {
        const std::uint64_t whole = bytes.size() / kDirectAlignment * kDirectAlignment;
        const int error = write_direct(direct->get(), bytes.subrange(0, whole), offset);
        // If there is no memory for a direct write, the page cache may still have some.
        if (error != 0 && error != EINVAL && error != ENOMEM) {
            return error;
        }
        if (error == EINVAL) {
            refuses_direct_ = true;
        }
        written = error == 0 ? whole : 0;
    }
    const Payload rest = bytes.subrange(written, bytes.size() - written);
    const Descriptor file = for_writing();
    if (file == nullptr) {
        return errno;
    }
    if (const int error = write_all(file->get(), rest, offset + written); error != 0) {
        return error;
    }
    // Begins writeback, so that the flush that an acknowledgement waits for has little left to do.
    ::sync_file_range(file->get(), static_cast<off_t>(offset), static_cast<off_t>(bytes.size()), SYNC_FILE_RANGE_WRITE);
    return 0;
}

BodyFile::Descriptor BodyFile::open_now(int flags) const {
    FileDescriptor file(::open(path_.c_str(), flags | O_NOFOLLOW | O_CLOEXEC));
    return file ? std::make_shared<const FileDescriptor>(std::move(file)) : nullptr;
}

BodyFile::Descriptor BodyFile::for_writing() {
    const MutexLock lock(mutex_);
    if (file_ == nullptr) {
        file_ = open_now(O_RDWR);
    }
    return file_;
}

BodyFile::Descriptor BodyFile::past_cache() {
    if (refuses_direct_) {
        return nullptr;
    }
    const MutexLock lock(mutex_);
    if (past_cache_ == nullptr) {
        past_cache_ = open_now(O_WRONLY | O_DIRECT);
        refuses_direct_ = past_cache_ == nullptr;
    }
    return past_cache_;
}

Status BodyFile::sync() {
    Descriptor file;
    {
        const MutexLock lock(mutex_);
        past_cache_ = nullptr;
        file.swap(file_);
    }
    // A write that began before the last sync() may have ended after it.
    file = file != nullptr ? file : open_now(O_RDWR);
    if (file == nullptr) {
        return failed(errno, "open");
    }
    if (failed_ == 0 && ::fdatasync(file->get()) != 0) {
        failed_ = errno;
    }
    return failed_ == 0 ? Status() : Status(failed(failed_, "flush"));
}

Status BodyFile::read(const BodyPiece& piece, std::uint64_t block, MutableByteSpan target) const {
    const Descriptor file = open_now(O_RDONLY);
    if (file == nullptr) {
        return failed(errno, "open");
    }
    if (const int error = read_all(file->get(), target, piece.offset + block * kChecksumBlock); error != 0) {
        return failed(error == ENODATA ? EIO : error, "read");
    }
    if (block >= piece.checksums.size() || crc32c(target) != piece.checksums[block]) {
        return damage(format("{} does not hold what was written to it, from byte {} on: the disk is failing",
                             escaped(path_), piece.offset + block * kChecksumBlock));
    }
    return {};
}

}  // namespace ckptfs
