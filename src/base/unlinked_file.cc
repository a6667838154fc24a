// SPDX-License-Identifier: Apache-2.0
#include "base/unlinked_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <vector>

namespace ckptfs {
namespace {

// Linux takes 1,024 in one call (UIO_MAXIOV, linux/uio.h).
constexpr std::size_t kMaxVectors = 1024;

std::vector<iovec> vectors_of(const Payload& bytes) {
    std::vector<iovec> vectors;
    for (const Slice& slice : bytes.slices().first(std::min(kMaxVectors, bytes.slices().size()))) {
        vectors.push_back({const_cast<std::byte*>(slice.bytes.data()), slice.bytes.size()});
    }
    return vectors;
}

}  // namespace

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

int read_all(int file, MutableByteSpan target, std::uint64_t offset) {
    while (!target.empty()) {
        const ssize_t got = ::pread(file, target.data(), target.size(), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? errno : ENODATA;
        }
        offset += static_cast<std::uint64_t>(got);
        target = target.subspan(static_cast<std::size_t>(got));
    }
    return 0;
}

}  // namespace ckptfs
