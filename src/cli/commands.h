// SPDX-License-Identifier: Apache-2.0
// The commands, each in a file of its name; those that need no mount begin in tool_command.cc. They return the exit
// status.
#pragma once

#include <string>

#include "ckptfs/config.h"
#include "cli/command_line.h"

namespace ckptfs {

// `ckptfs mount`: checks first, mounts, serves until the end. 0 when everything written is saved; `failed` when the
// mount could not be made.
int mount_command(Config config, int failed);

// `ckptfs unmount DIR`: asks the daemon to end, shows how far it is, and says what was not saved.
int unmount_command(const std::string& directory);

// `ckptfs status`: asks daemons what they are doing, and prints it. 1 where one does not answer, or there is none.
int status_command(const StatusRequest& request);

// `ckptfs wait`: 1 where it is not all in the bucket in time, or the daemon does not answer.
int wait_command(const WaitRequest& request);

// `ckptfs warm` and `drop`: 1 where a file could not be kept, or dropped.
int cache_command(const CacheRequest& request);

// `ckptfs inspect`, `cat`, `verify`, `gc` and `doctor`: what needs no mount.
int tool_command(const ToolRequest& request, const Config& config);

// `ckptfs doctor`: checks this machine and a store for all that a mount relies on, and says what that means. Forks, so
// call it before the first thread is started.
int doctor_command(const ToolRequest& request, const Config& config);

// For progress on a terminal: goes to the first column and clears the line (ECMA-48).
inline constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace ckptfs
