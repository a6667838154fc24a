// SPDX-License-Identifier: Apache-2.0
// `ckptfs inspect`, `cat` and `verify`: commands that look at the store without a mount.
#pragma once

#include "ckptfs/config.h"
#include "cli/command_line.h"

namespace ckptfs {

// The exit status.
int tool_command(const ToolRequest& request, const Config& config);

}  // namespace ckptfs
