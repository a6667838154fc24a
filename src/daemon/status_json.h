// SPDX-License-Identifier: Apache-2.0
// A daemon's reply to `ckptfs status`: a line of JSON. Pure.
#pragma once

#include <string>
#include <string_view>

#include "ckptfs/status.h"
#include "daemon/mount_status.h"

namespace ckptfs {

[[nodiscard]] std::string json_of(const MountStatus& status);

// EPROTO for text that json_of() does not make.
[[nodiscard]] Result<MountStatus> parse_status(std::string_view json);

}  // namespace ckptfs
