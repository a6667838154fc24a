// SPDX-License-Identifier: Apache-2.0
// The words of -o, as people and mount(8) write them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ckptfs/status.h"
#include "config/options.h"

namespace ckptfs {

enum class UnknownOptions : std::uint8_t { kRefused, kIgnored };

// "name=value,flag,…"; a comma in a value is written "\,". What fstab(5), systemd.mount(5) and mount(8) write for their
// own use is left out.
Result<std::vector<Setting>> parse_mount_options(std::string_view text, UnknownOptions unknown);

}  // namespace ckptfs
