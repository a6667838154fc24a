// SPDX-License-Identifier: Apache-2.0
// The source and the options that belong to a directory: of the mount that is there, or of its line in /etc/fstab. And
// the key of a path in a mount.
//
// find_place() does not touch a mount, because it may hang. Threads: used by one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "ckptfs/status.h"
#include "config/options.h"

namespace ckptfs {

struct MountPlace {
    // s3://BUCKET[/PREFIX]
    std::string source;
    std::vector<Setting> settings;
    // For a person: "as /etc/fstab has it for /mnt/a".
    std::string origin;
    // The path below the source; ends in '/' for a directory, empty for the mount's own directory.
    std::string path{};
};

struct FstabLine {
    std::string source;
    std::string directory;
    std::string options;
};
// The lines of ckptfs, unescaped; ENOENT and the like if the file cannot be read.
Result<std::vector<FstabLine>> read_fstab(const std::string& path);

// The settings of a process that is a mount of this source; EINVAL for any other. `command`: the words that it was
// started with, each with a zero byte at its end.
Result<std::vector<Setting>> settings_of_command(std::string_view command, const std::string& source);

// Whether a line of fstab mounts this source at this directory.
[[nodiscard]] bool is_in_fstab(const std::string& source, const std::string& directory, const Environment& environment);

// LIBMOUNT_FSTAB names another file than /etc/fstab, as for mount(8). EINVAL where the directory is in neither table.
Result<MountPlace> find_place(const std::string& directory, const Environment& environment);

// The place of a file or directory in a mount. Links are followed as programs follow them; if the mount does not
// answer, or nothing is there, the path is used as it stands. EINVAL if it is in no mount of ckptfs.
Result<MountPlace> find_place_holding(const std::string& path, const Environment& environment);

}  // namespace ckptfs
