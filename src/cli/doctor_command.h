// SPDX-License-Identifier: Apache-2.0
// `ckptfs doctor`: asks this machine and a store for all that a mount relies on, and says what that means.
#pragma once

#include "ckptfs/config.h"
#include "cli/command_line.h"

namespace ckptfs {

// The exit status. Forks, so call it before the first thread is started.
int doctor_command(const ToolRequest& request, const Config& config);

}  // namespace ckptfs
