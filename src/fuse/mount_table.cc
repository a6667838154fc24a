// SPDX-License-Identifier: Apache-2.0
#include "fuse/mount_table.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/numbers.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> fields;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(separator), text.size());
        if (end > 0) {
            fields.push_back(text.substr(0, end));
        }
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return fields;
}

bool is_octal(char digit) {
    return digit >= '0' && digit <= '7';
}

// Space, tab, newline and backslash are written as \ooo.
std::string unescape(std::string_view text) {
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
            is_octal(text[i + 3])) {
            plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
            i += 3;
        } else {
            plain += text[i];
        }
    }
    return plain;
}

std::optional<MountEntry> parse_line(std::string_view line) {
    const std::vector<std::string_view> fields = split(line, ' ');
    // ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS [TAG...] - TYPE SOURCE SUPEROPTIONS
    std::size_t separator = 6;
    while (separator < fields.size() && fields[separator] != "-") {
        ++separator;
    }
    if (separator + 3 >= fields.size()) {
        return std::nullopt;
    }
    const std::vector<std::string_view> device = split(fields[2], ':');
    if (device.size() != 2) {
        return std::nullopt;
    }
    const auto mount_id = whole_number<int>(fields[0]);
    const auto parent_id = whole_number<int>(fields[1]);
    const auto major = whole_number<unsigned>(device[0]);
    const auto minor = whole_number<unsigned>(device[1]);
    if (!mount_id || !parent_id || !major || !minor) {
        return std::nullopt;
    }
    MountEntry entry;
    entry.mount_id = *mount_id;
    entry.parent_id = *parent_id;
    entry.major = *major;
    entry.minor = *minor;
    entry.root = unescape(fields[3]);
    entry.mount_point = unescape(fields[4]);
    entry.type = fields[separator + 1];
    entry.source = unescape(fields[separator + 2]);
    entry.super_options = fields[separator + 3];
    return entry;
}

bool holds(std::string_view mount_point, std::string_view path) {
    if (mount_point == "/") {
        return path.starts_with('/');
    }
    return path.starts_with(mount_point) && (path.size() == mount_point.size() || path[mount_point.size()] == '/');
}

}  // namespace

std::string device_of(const MountEntry& mount) {
    return format("{}:{}", mount.major, mount.minor);
}

std::optional<uid_t> MountEntry::owner() const {
    constexpr std::string_view kUserId = "user_id=";
    for (const std::string_view option : split(super_options, ',')) {
        if (option.starts_with(kUserId)) {
            return whole_number<uid_t>(option.substr(kUserId.size()));
        }
    }
    return std::nullopt;
}

std::vector<MountEntry> parse_mount_table(std::string_view text) {
    std::vector<MountEntry> table;
    for (const std::string_view line : split(text, '\n')) {
        if (auto entry = parse_line(line)) {
            table.push_back(std::move(*entry));
        }
    }
    return table;
}

Result<std::vector<MountEntry>> read_mount_table() {
    std::ifstream file("/proc/self/mountinfo");
    std::stringstream text;
    text << file.rdbuf();
    if (!file) {
        return failure(EIO, "cannot read /proc/self/mountinfo; is /proc mounted?");
    }
    return parse_mount_table(text.str());
}

std::optional<MountEntry> mount_at(const std::vector<MountEntry>& table, std::string_view path) {
    for (auto entry = table.rbegin(); entry != table.rend(); ++entry) {
        if (entry->mount_point == path) {
            return *entry;
        }
    }
    return std::nullopt;
}

const MountEntry& made_by_daemon(const std::vector<MountEntry>& table, const MountEntry& shown) {
    const auto made = std::find_if(table.begin(), table.end(), [&](const MountEntry& each) {
        return each.major == shown.major && each.minor == shown.minor && each.root == "/";
    });
    return made == table.end() ? shown : *made;
}

std::string mounts_inside(const std::vector<MountEntry>& table, const MountEntry& mount) {
    std::string names;
    for (const MountEntry& each : table) {
        if (each.parent_id == mount.mount_id && each.mount_id != mount.mount_id) {
            names += (names.empty() ? "" : ", ") + escaped(each.mount_point);
        }
    }
    return names;
}

std::optional<MountEntry> mount_holding(const std::vector<MountEntry>& table, std::string_view path) {
    const MountEntry* best = nullptr;
    for (const MountEntry& entry : table) {
        if (holds(entry.mount_point, path) &&
            (best == nullptr || entry.mount_point.size() >= best->mount_point.size())) {
            best = &entry;
        }
    }
    return best == nullptr ? std::nullopt : std::optional(*best);
}

}  // namespace ckptfs
