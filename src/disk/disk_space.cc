// SPDX-License-Identifier: Apache-2.0
#include "disk/disk_space.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>

#include "base/unlinked_file.h"

namespace ckptfs {

namespace {

constexpr std::string_view kData = ".data";
constexpr std::string_view kIndex = ".index";
// Linux: the unit of st_blocks, in bytes.
constexpr std::uint64_t kStatBlock = 512;

struct CloseDirectory {
    void operator()(DIR* directory) const { closedir(directory); }
};

WallTime time_of(const timespec& time) {
    return WallTime(std::chrono::duration_cast<WallTime::duration>(std::chrono::seconds(time.tv_sec) +
                                                                   std::chrono::nanoseconds(time.tv_nsec)));
}

// Whether the path still names the file, which may have been removed and created again before it was locked.
bool has_name(int file, const std::string& path) {
    struct stat opened {};
    struct stat named {};
    return fstat(file, &opened) == 0 && lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

}  // namespace

std::string data_path(const std::string& directory, const std::string& name) {
    return directory + "/" + name + std::string(kData);
}

std::string index_path(const std::string& directory, const std::string& name) {
    return directory + "/" + name + std::string(kIndex);
}

std::string header_on_disk(const std::string& directory, const std::string& name) {
    const FileDescriptor index(::open(index_path(directory, name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    std::string header(kIndexHeaderSize, '\0');
    const bool is_read = index && read_all(index.get(), std::as_writable_bytes(std::span(header)), 0) == 0;
    return is_read ? header : "";
}

std::optional<std::uint64_t> size_on_disk(const std::string& directory, const KeptVersion& version) {
    return version.size_in(header_on_disk(directory, version.file_name()));
}

std::uint64_t bytes_taken(const std::string& directory, const std::string& name) {
    std::uint64_t bytes = 0;
    for (const std::string& path : {data_path(directory, name), index_path(directory, name)}) {
        struct stat file {};
        if (lstat(path.c_str(), &file) == 0) {
            bytes += static_cast<std::uint64_t>(file.st_blocks) * kStatBlock;
        }
    }
    return bytes;
}

std::vector<KeptOnDisk> list_kept(const std::string& directory) {
    std::vector<KeptOnDisk> kept;
    const std::unique_ptr<DIR, CloseDirectory> entries(opendir(directory.c_str()));
    if (entries == nullptr) {
        return kept;
    }
    while (const dirent* entry = readdir(entries.get())) {
        const std::string_view file = entry->d_name;
        // A directory that was not made for this may hold files of other programs.
        if (!file.ends_with(kIndex) || !is_file_name(file.substr(0, file.size() - kIndex.size()))) {
            continue;
        }
        KeptOnDisk found;
        found.name = file.substr(0, file.size() - kIndex.size());
        struct stat index {};
        if (fstatat(dirfd(entries.get()), entry->d_name, &index, AT_SYMLINK_NOFOLLOW) != 0) {
            continue;
        }
        found.bytes = bytes_taken(directory, found.name);
        found.used = time_of(index.st_mtim);
        kept.push_back(std::move(found));
    }
    return kept;
}

std::uint64_t make_room(const std::string& directory, std::uint64_t limit) {
    std::vector<KeptOnDisk> kept = list_kept(directory);
    std::uint64_t bytes = 0;
    for (const KeptOnDisk& each : kept) {
        bytes += each.bytes;
    }
    std::sort(kept.begin(), kept.end(), [](const KeptOnDisk& a, const KeptOnDisk& b) { return a.used < b.used; });
    for (const KeptOnDisk& each : kept) {
        if (bytes <= limit) {
            break;
        }
        if (remove_kept(directory, each.name)) {
            bytes -= each.bytes;
        }
    }
    return bytes;
}

bool remove_kept(const std::string& directory, const std::string& name) {
    const std::string index = index_path(directory, name);
    const FileDescriptor file(::open(index.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file || flock(file.get(), LOCK_EX | LOCK_NB) != 0 || !has_name(file.get(), index)) {
        return false;
    }
    // The data first: data without an index would never be found again.
    const int removed = ::unlink(data_path(directory, name).c_str());
    return (removed == 0 || errno == ENOENT) && ::unlink(index.c_str()) == 0;
}

}  // namespace ckptfs
