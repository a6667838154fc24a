// SPDX-License-Identifier: Apache-2.0
#include "base/private_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {

Status make_private_directory(const std::string& path) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
        return failure(errno, format("cannot make {}: {}", escaped(path), std::strerror(errno)));
    }
    return check_private_directory(path);
}

Status check_private_directory(const std::string& path) {
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0) {
        return failure(errno, format("cannot look at {}: {}", escaped(path), std::strerror(errno)));
    }
    if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 0077) != 0) {
        return failure(EPERM, format("{} is not a directory that only this user can enter", escaped(path)));
    }
    return {};
}

Status flush_directory(const std::string& path) {
    const FileDescriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory || fsync(directory.get()) != 0) {
        const int error = errno;
        return failure(error, format("cannot flush {}: {}", escaped(path), std::strerror(error)));
    }
    return {};
}

}  // namespace ckptfs
