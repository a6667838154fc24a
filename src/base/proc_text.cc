// SPDX-License-Identifier: Apache-2.0
#include "base/proc_text.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <csignal>
#include <vector>

#include "base/numbers.h"
#include "base/text.h"

namespace ckptfs {
namespace {

// include/linux/sched.h of Linux; shown in the flags field (proc(5), stat field 9).
constexpr std::uint64_t kPfExiting = 0x4;
constexpr std::size_t kFlagsField = 9;
constexpr std::size_t kExitCodeField = 52;
// capabilities(7): number 19.
constexpr std::uint64_t kCapSysPtrace = std::uint64_t{1} << 19;

std::string_view next_line(std::string_view& text) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
}

std::vector<std::string_view> words(std::string_view text) {
    constexpr std::string_view kBlanks = " \t\n";
    std::vector<std::string_view> found;
    while (true) {
        text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
        if (text.empty()) {
            return found;
        }
        const std::size_t end = std::min(text.find_first_of(kBlanks), text.size());
        found.push_back(text.substr(0, end));
        text.remove_prefix(end);
    }
}

// "0x…"
std::optional<std::uint64_t> hexadecimal(std::string_view word) {
    return word.starts_with("0x") ? whole_number<std::uint64_t>(word.substr(2), 16) : std::nullopt;
}

// The first word behind "NAME:" at the start of a line.
template <class Number>
std::optional<Number> value_of(std::string_view text, std::string_view name, int base = 10) {
    while (!text.empty()) {
        const std::string_view line = next_line(text);
        if (!line.starts_with(name) || !line.substr(name.size()).starts_with(':')) {
            continue;
        }
        const auto values = words(line.substr(name.size() + 1));
        return values.empty() ? std::nullopt : whole_number<Number>(values.front(), base);
    }
    return std::nullopt;
}

// mountinfo writes blanks, line ends and backslashes in paths as \ooo.
std::string without_octal_escapes(std::string_view text) {
    std::string plain;
    while (!text.empty()) {
        const auto code = text.front() == '\\' && text.size() >= 4 ? whole_number<unsigned>(text.substr(1, 3), 8)
                                                                   : std::optional<unsigned>();
        plain += code ? static_cast<char>(*code) : text.front();
        text.remove_prefix(code ? 4 : 1);
    }
    return plain;
}

struct MountLine {
    MountIdentity identity;
    std::string directory;
};

// ID PARENT MAJOR:MINOR ROOT DIRECTORY …
std::optional<MountLine> parse_mount_line(std::string_view line) {
    const auto fields = words(line);
    const auto id = fields.size() > 4 ? whole_number<int>(fields[0]) : std::optional<int>();
    if (!id) {
        return std::nullopt;
    }
    return MountLine{{*id, std::string(fields[2])}, without_octal_escapes(fields[4])};
}

}  // namespace

std::optional<TaskStat> parse_task_stat(std::string_view text) {
    // The second field is the program's name in parentheses, and may hold anything, parentheses and blanks included.
    const std::size_t name_end = text.rfind(')');
    if (name_end == std::string_view::npos) {
        return std::nullopt;
    }
    constexpr std::size_t kFirstField = 3;
    const auto fields = words(text.substr(name_end + 1));
    if (fields.size() <= kExitCodeField - kFirstField) {
        return std::nullopt;
    }
    const auto flags = whole_number<std::uint64_t>(fields[kFlagsField - kFirstField]);
    const auto exit_code = whole_number<int>(fields[kExitCodeField - kFirstField]);
    if (!flags || !exit_code) {
        return std::nullopt;
    }
    const std::string_view state = fields.front();
    return TaskStat{(*flags & kPfExiting) != 0, state == "Z" || state == "X", state == "T" || state == "t", *exit_code};
}

std::optional<TaskStatus> parse_task_status(std::string_view text) {
    const auto thread_group = value_of<pid_t>(text, "Tgid");
    const auto own = value_of<std::uint64_t>(text, "SigPnd", 16);
    const auto shared = value_of<std::uint64_t>(text, "ShdPnd", 16);
    if (!thread_group || *thread_group <= 0 || !own || !shared) {
        return std::nullopt;
    }
    constexpr std::uint64_t kSigkillBit = std::uint64_t{1} << (SIGKILL - 1);
    return TaskStatus{*thread_group, ((*own | *shared) & kSigkillBit) != 0, (*shared & kSigkillBit) != 0,
                      value_of<int>(text, "CoreDumping").value_or(0) != 0};
}

bool may_trace_everyone(std::string_view status_text) {
    return (value_of<std::uint64_t>(status_text, "CapEff", 16).value_or(0) & kCapSysPtrace) != 0;
}

std::optional<DescriptorInfo> parse_descriptor_info(std::string_view text) {
    const auto inode = value_of<std::uint64_t>(text, "ino");
    const auto mount_id = value_of<int>(text, "mnt_id");
    const auto flags = value_of<std::uint64_t>(text, "flags", 8);
    if (!inode || !mount_id || !flags) {
        return std::nullopt;
    }
    const auto access = static_cast<int>(*flags & O_ACCMODE);
    return DescriptorInfo{*inode, *mount_id, access, access != O_RDONLY, (*flags & O_CLOEXEC) != 0};
}

std::vector<pid_t> parse_children(std::string_view text) {
    std::vector<pid_t> children;
    for (const std::string_view word : words(text)) {
        if (const auto child = whole_number<pid_t>(word)) {
            children.push_back(*child);
        }
    }
    return children;
}

std::optional<OpenCall> parse_open_call(std::string_view text) {
    // NUMBER ARGUMENT… STACK INSTRUCTION; of a thread that does not wait: "running".
    const auto fields = words(text);
    const auto number = fields.size() > 4 ? whole_number<long>(fields[0]) : std::optional<long>();
    std::size_t first = 0;
    if (number == SYS_openat) {
        first = 2;
#ifdef SYS_open
    } else if (number == SYS_open) {
        first = 1;
#endif
    } else {
        return std::nullopt;
    }
    const auto path = hexadecimal(fields[first]);
    const auto flags = hexadecimal(fields[first + 1]);
    // Registers hold 64 bits, and an int takes the lower half.
    return path && flags ? std::optional(OpenCall{*path, static_cast<int>(*flags & 0x7FFFFFFF)}) : std::nullopt;
}

bool only_ends_in(std::string_view path, std::string_view name) {
    const std::size_t last = path.rfind('/') + 1;
    if (name.empty() || path.substr(last) != name) {
        return false;
    }
    path = path.substr(0, last);
    while (!path.empty()) {
        const std::size_t end = std::min(path.find('/'), path.size());
        if (path.substr(0, end) == name) {
            return false;
        }
        path.remove_prefix(std::min(end + 1, path.size()));
    }
    return true;
}

std::optional<MountIdentity> find_mount_on(std::string_view mountinfo, std::string_view directory) {
    std::optional<MountIdentity> topmost;
    while (!mountinfo.empty()) {
        auto line = parse_mount_line(next_line(mountinfo));
        if (line && line->directory == directory) {
            topmost = std::move(line->identity);
        }
    }
    return topmost;
}

std::optional<MountIdentity> find_mount_by_id(std::string_view mountinfo, int mount_id) {
    while (!mountinfo.empty()) {
        auto line = parse_mount_line(next_line(mountinfo));
        if (line && line->identity.mount_id == mount_id) {
            return std::move(line->identity);
        }
    }
    return std::nullopt;
}

bool is_locked(std::string_view locks, std::string_view device, std::uint64_t inode, std::optional<pid_t> process) {
    const std::size_t colon = device.find(':');
    const auto major = whole_number<unsigned>(device.substr(0, colon));
    const auto minor =
        colon == std::string_view::npos ? std::nullopt : whole_number<unsigned>(device.substr(colon + 1));
    if (!major || !minor) {
        return false;
    }
    const std::string holder = process ? format(" {}", *process) : "";
    const std::string file = format("{} {:02x}:{:02x}:{} ", holder, *major, *minor, inode);
    while (!locks.empty()) {
        const std::string_view line = next_line(locks);
        // Waiters for a lock are listed below it, after an arrow.
        if (line.find(file) != std::string_view::npos && line.find(" -> ") == std::string_view::npos) {
            return true;
        }
    }
    return false;
}

}  // namespace ckptfs
