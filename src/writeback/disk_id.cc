// SPDX-License-Identifier: Apache-2.0
#include "writeback/disk_id.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "base/text_file.h"
#include "base/uuid.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// The lines of the ID's file.
struct Written {
    std::string id;
    std::string host;
    std::string boot;
    std::string inode;
    std::string device;
};

Written read(const std::string& path) {
    const std::string text = read_text_file(AT_FDCWD, path.c_str()).value_or("");
    std::string_view rest = text;
    Written written;
    for (std::string* const line : {&written.id, &written.host, &written.boot, &written.inode, &written.device}) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        *line = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return written;
}

struct Place {
    std::string inode;
    std::string device;
};

// A new file system gives out the numbers of inodes from the beginning: the time at which the file was made tells.
Place place_of(int directory, const char* path) {
    struct statx file {};
    if (::statx(directory, path, AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &file) != 0) {
        return {};
    }
    const bool has_time = (file.stx_mask & STATX_BTIME) != 0;
    return {
        format("{}-{}.{}", file.stx_ino, has_time ? file.stx_btime.tv_sec : 0, has_time ? file.stx_btime.tv_nsec : 0),
        format("{}:{}", file.stx_dev_major, file.stx_dev_minor)};
}

Status write(const std::string& directory, const std::string& path, const std::string& id, const DiskHost& host) {
    const std::string made = path + ".new";
    const FileDescriptor file(::open(made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    const FileDescriptor parent(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const Place place = file ? place_of(file.get(), "") : Place();
    const bool is_written =
        file && parent &&
        write_text(file.get(), format("{}\n{}\n{}\n{}\n{}", id, host.name, host.boot, place.inode, place.device)) &&
        ::fsync(file.get()) == 0 && ::rename(made.c_str(), path.c_str()) == 0 && ::fsync(parent.get()) == 0;
    return is_written ? Status() : failure(errno, format("cannot write {}: {}", escaped(path), std::strerror(errno)));
}

}  // namespace

std::string this_boot() {
    const std::string text = read_text_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id").value_or("");
    return text.substr(0, text.find('\n'));
}

Result<std::string> disk_id(const std::string& directory, const DiskHost& host, bool is_left) {
    const std::string path = directory + "/id";
    const Written there = read(path);
    const Place place = place_of(AT_FDCWD, path.c_str());
    const bool is_same_boot = !host.boot.empty() && there.boot == host.boot;
    const bool is_same_host =
        there.host.empty() || (is_same_boot ? there.device == place.device : there.host == host.name);
    const bool is_same = is_same_host && (there.inode.empty() || there.inode == place.inode);
    const bool is_kept = is_uuid(there.id) && (is_left || is_same);
    const bool is_up_to_date = there.host == host.name && is_same_boot;
    // Of a copy, the file stays as it is: once nothing is left, it shows that it is one.
    if (is_kept && (!is_same || is_up_to_date)) {
        return there.id;
    }
    const std::string id = is_kept ? there.id : random_uuid();
    if (Status made = write(directory, path, id, host); !made) {
        if (!is_kept) {
            return failure(std::move(made.error()));
        }
        // A disk that is full: what is sent makes room.
        log_warning(made.error().message);
    }
    return id;
}

}  // namespace ckptfs
