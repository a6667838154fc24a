// SPDX-License-Identifier: Apache-2.0
// Option values as users write them. Pure, except for names of users and groups; the error's message says what was
// expected.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ckptfs/clock.h"
#include "ckptfs/status.h"

namespace ckptfs {

Result<std::uint64_t> parse_number(std::string_view text, std::uint64_t smallest, std::uint64_t largest);
// "1048576", "128M", "1G", "128MiB": powers of 1024.
Result<std::uint64_t> parse_size(std::string_view text);
// "30", "30s", "500ms", "5m", "1h"; seconds without a unit.
Result<Milliseconds> parse_duration(std::string_view text);
// Octal, at most 0777.
Result<mode_t> parse_mode(std::string_view text);
// A number, or a name of this machine's users or groups.
Result<uid_t> parse_user(std::string_view text);
Result<gid_t> parse_group(std::string_view text);
// "yes", "true", "on", "1" and the opposites.
Result<bool> parse_switch(std::string_view text);
// Items between commas; empty ones are left out.
std::vector<std::string> parse_list(std::string_view text);
// Where the metrics are served: "9464" and ":9464" are on loopback; "HOST:PORT" and "[ADDRESS]:PORT" name the address.
Result<std::string> parse_address(const std::string& text);

}  // namespace ckptfs
