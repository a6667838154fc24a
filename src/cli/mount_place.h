// SPDX-License-Identifier: Apache-2.0
// The source and the options that belong to a directory: of the mount that is there, or of its line in /etc/fstab. And
// what a path in a mount is called in the store.
//
// A mount is not touched for its directory, because it may hang. Threads: used by one thread.
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
    // For people: "as /etc/fstab has it for /mnt/a".
    std::string origin;
    // Below the source; ends in '/' for a directory, empty for the mount's own.
    std::string path{};
};

struct FstabLine {
    std::string source;
    std::string directory;
    std::string options;
};
// Those of ckptfs, unescaped; ENOENT and the like where the file cannot be read.
Result<std::vector<FstabLine>> read_fstab(const std::string& path);

// What a process was started with: words that end in a zero byte. Its settings, where it is a mount of this source.
Result<std::vector<Setting>> settings_of_command(std::string_view command, const std::string& source);

// Whether a line of fstab mounts this there.
[[nodiscard]] bool is_in_fstab(const std::string& source, const std::string& directory, const Environment& environment);

// LIBMOUNT_FSTAB names another file than /etc/fstab, as for mount(8). EINVAL where the directory is in neither table.
Result<MountPlace> find_place(const std::string& directory, const Environment& environment);

// Of a file or directory in a mount. Links are followed as programs follow them; where the mount does not answer, or
// nothing is there, the path is taken as it stands. EINVAL where no ckptfs holds it.
Result<MountPlace> find_place_holding(const std::string& path, const Environment& environment);

}  // namespace ckptfs
