// SPDX-License-Identifier: Apache-2.0
// How much memory this machine, or the control group we are in, would let us have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckptfs {

// Bytes from the text of /proc/meminfo (proc(5)): of all RAM, and of what programs could have without swapping.
[[nodiscard]] std::optional<std::uint64_t> parse_total_ram(std::string_view meminfo);
[[nodiscard]] std::optional<std::uint64_t> parse_available_ram(std::string_view meminfo);

// Files that may hold a limit for a process, from the text of its /proc/PID/cgroup (cgroups(7)): memory.max of version
// 2 and memory.limit_in_bytes of version 1, of its group and all groups above.
[[nodiscard]] std::vector<std::string> memory_limit_files(std::string_view proc_cgroup);

// Bytes from the text of such a file; empty for "max".
[[nodiscard]] std::optional<std::uint64_t> parse_memory_limit(std::string_view text);

// 5 % of RAM or of the limit, but not below the smallest budget that works, and not above what so many processors can
// keep in flight: 64 MiB each, 1 GiB at least and 4 GiB at most.
[[nodiscard]] std::uint64_t default_max_memory(std::optional<std::uint64_t> ram, std::optional<std::uint64_t> limit,
                                               int processors);

// The same for this process; reads /proc and /sys/fs/cgroup.
[[nodiscard]] std::uint64_t default_max_memory(int processors);

// Reads /proc; 0 if it does not say.
[[nodiscard]] std::uint64_t available_ram();

}  // namespace ckptfs
