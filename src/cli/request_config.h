// SPDX-License-Identifier: Apache-2.0
// From what was typed to the Config of a mount or of a tool: defaults, environment, -o and flags, of which the later
// win, and the settings of the mount in which a tool's path is.
#pragma once

#include "ckptfs/config.h"
#include "ckptfs/status.h"
#include "cli/command_line.h"
#include "config/options.h"

namespace ckptfs {

// Whether the tool has this option of a mount.
[[nodiscard]] bool takes(Tool tool, const OptionSpec& option);

// The request with the object and the settings of its path; settings that were typed win.
Result<ToolRequest> with_place(ToolRequest request, const Environment& environment);

Result<Config> make_config(const MountRequest& request, const Environment& environment);
Result<Config> make_config(const ToolRequest& request, const Environment& environment);

}  // namespace ckptfs
