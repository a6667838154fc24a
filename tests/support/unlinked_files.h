// SPDX-License-Identifier: Apache-2.0
// The files of this process that lie in a directory without a name, as what is staged does.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "base/file_descriptor.h"

namespace ckptfs::testing {

// Paths by which they can be opened once more.
inline std::vector<std::filesystem::path> unlinked_files(const std::filesystem::path& directory) {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        if (std::filesystem::read_symlink(entry, gone).string().starts_with(directory.string() + "/")) {
            found.push_back(entry.path());
        }
    }
    return found;
}

[[nodiscard]] inline bool flip_a_bit(const std::filesystem::path& path, std::uint64_t offset) {
    const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    const auto place = static_cast<off_t>(offset);
    char byte = 0;
    if (::pread(file.get(), &byte, 1, place) != 1) {
        return false;
    }
    byte = static_cast<char>(byte ^ 1);
    return ::pwrite(file.get(), &byte, 1, place) == 1;
}

}  // namespace ckptfs::testing
