// SPDX-License-Identifier: Apache-2.0
// `ckptfs inspect`, `cat`, `verify`, `gc` and `doctor`: commands that need no mount.
#pragma once

#include "ckptfs/config.h"
#include "cli/command_line.h"

namespace ckptfs {

// The exit status.
int tool_command(const ToolRequest& request, const Config& config);

}  // namespace ckptfs
