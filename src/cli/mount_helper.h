// SPDX-License-Identifier: Apache-2.0
// How mount(8) calls its helpers, and what it expects of them.
//
//   mount.ckptfs SOURCE DIR [-sfnvrw] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]
// mount.fuse3(8) calls `ckptfs SOURCE DIR -o OPTIONS` for the type fuse.ckptfs instead, and hands on its exit status.
#pragma once

#include <string>
#include <vector>

#include "ckptfs/status.h"

namespace ckptfs {

// Exit codes of mount(8).
inline constexpr int kMountUsageError = 1;
inline constexpr int kMountFailed = 32;

struct HelperCall {
    // SOURCE DIR [-o OPTIONS]...
    std::vector<std::string> words;
    // -f: everything but the mount.
    bool pretend = false;
    // -s: options that do not exist are no error.
    bool sloppy = false;
    // -N: file of the mount namespace to mount in; empty: our own.
    std::string mount_namespace;
};

// Whether the program's name is mount.TYPE.
[[nodiscard]] bool is_helper_call(const std::vector<std::string>& arguments);
// `arguments` with the program's name first.
[[nodiscard]] HelperCall parse_helper_call(const std::vector<std::string>& arguments);

// Enters the mount namespace of `file`. Call it before any thread is started.
Status enter_mount_namespace(const std::string& file);

}  // namespace ckptfs
