// SPDX-License-Identifier: Apache-2.0
// `ckptfs mount`: checks first, mounts, serves until the end.
#pragma once

#include "ckptfs/config.h"

namespace ckptfs {

// The exit status: 0 when everything written is saved; `failed` when the mount could not be made.
int mount_command(Config config, int failed);

}  // namespace ckptfs
