// SPDX-License-Identifier: Apache-2.0
#include "base/memory_limit.h"

#include <fcntl.h>

#include <algorithm>
#include <limits>

#include "base/memory_shares.h"
#include "base/numbers.h"
#include "base/text_file.h"

namespace ckptfs {
namespace {

constexpr std::uint64_t kLeastUpperBound = std::uint64_t{1} << 30;
constexpr std::uint64_t kMostUpperBound = std::uint64_t{4} << 30;
// A part of 16 MiB takes a fifth of a second on a connection of 90 MB/s: 4 GiB in flight are 20 GB/s.
constexpr std::uint64_t kForOneProcessor = std::uint64_t{64} << 20;
constexpr std::uint64_t kShareOfRam = 20;

std::string_view next_line(std::string_view& text) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    return take_number<std::uint64_t>(text);
}

// "memory" among "cpu,memory".
bool names_memory(std::string_view controllers) {
    while (!controllers.empty()) {
        const std::size_t comma = std::min(controllers.find(','), controllers.size());
        if (controllers.substr(0, comma) == "memory") {
            return true;
        }
        controllers.remove_prefix(std::min(comma + 1, controllers.size()));
    }
    return false;
}

void append_group_and_those_above(std::vector<std::string>& files, std::string_view root, std::string_view group,
                                  std::string_view file) {
    while (true) {
        const std::string_view path = group == "/" ? "" : group;
        files.push_back(std::string(root) + std::string(path) + "/" + std::string(file));
        if (path.empty()) {
            return;
        }
        group = group.substr(0, group.rfind('/'));
    }
}

std::optional<std::uint64_t> bytes_named(std::string_view meminfo, std::string_view name) {
    while (!meminfo.empty()) {
        const std::string_view line = next_line(meminfo);
        if (!line.starts_with(name)) {
            continue;
        }
        const auto kibibytes = leading_number(line.substr(name.size()));
        if (!kibibytes || *kibibytes > std::numeric_limits<std::uint64_t>::max() / 1024) {
            return std::nullopt;
        }
        return *kibibytes * 1024;
    }
    return std::nullopt;
}

std::string text_or_empty(const std::string& path) {
    return read_text_file(AT_FDCWD, path.c_str()).value_or("");
}

}  // namespace

std::optional<std::uint64_t> parse_total_ram(std::string_view meminfo) {
    return bytes_named(meminfo, "MemTotal:");
}

std::optional<std::uint64_t> parse_available_ram(std::string_view meminfo) {
    return bytes_named(meminfo, "MemAvailable:");
}

std::vector<std::string> memory_limit_files(std::string_view proc_cgroup) {
    std::vector<std::string> files;
    while (!proc_cgroup.empty()) {
        // HIERARCHY:CONTROLLERS:PATH
        const std::string_view line = next_line(proc_cgroup);
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
        if (second == std::string_view::npos || !line.substr(second + 1).starts_with('/')) {
            continue;
        }
        const std::string_view controllers = line.substr(first + 1, second - first - 1);
        const std::string_view group = line.substr(second + 1);
        if (controllers.empty()) {
            append_group_and_those_above(files, "/sys/fs/cgroup", group, "memory.max");
        } else if (names_memory(controllers)) {
            append_group_and_those_above(files, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
        }
    }
    return files;
}

std::optional<std::uint64_t> parse_memory_limit(std::string_view text) {
    return leading_number(text);
}

std::uint64_t default_max_memory(std::optional<std::uint64_t> ram, std::optional<std::uint64_t> limit, int processors) {
    // Version 1 writes "no limit" as a number larger than any RAM.
    const std::uint64_t available = std::min(ram.value_or(std::numeric_limits<std::uint64_t>::max()),
                                             limit.value_or(std::numeric_limits<std::uint64_t>::max()));
    const std::uint64_t most = std::clamp(static_cast<std::uint64_t>(std::max(processors, 0)) * kForOneProcessor,
                                          kLeastUpperBound, kMostUpperBound);
    return std::clamp(available / kShareOfRam, kSmallestMaxMemory, most);
}

std::uint64_t default_max_memory(int processors) {
    std::optional<std::uint64_t> smallest;
    for (const std::string& file : memory_limit_files(text_or_empty("/proc/self/cgroup"))) {
        const auto limit = parse_memory_limit(text_or_empty(file));
        if (limit && (!smallest || *limit < *smallest)) {
            smallest = limit;
        }
    }
    return default_max_memory(parse_total_ram(text_or_empty("/proc/meminfo")), smallest, processors);
}

std::uint64_t available_ram() {
    return parse_available_ram(text_or_empty("/proc/meminfo")).value_or(0);
}

}  // namespace ckptfs
