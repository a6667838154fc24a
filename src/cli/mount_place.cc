// SPDX-License-Identifier: Apache-2.0
#include "cli/mount_place.h"

#include <fcntl.h>
#include <mntent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <variant>

#include "base/text.h"
#include "base/text_file.h"
#include "ckptfs/log.h"
#include "cli/command_line.h"
#include "config/mount_options.h"
#include "daemon/local_checks.h"
#include "daemon/mounted_daemon.h"

namespace ckptfs {
namespace {

// A healthy daemon answers at once; for any other, fstab is used.
constexpr std::chrono::seconds kPatience{3};
constexpr std::size_t kLongestLine = 16384;

struct CloseTable {
    void operator()(FILE* file) const { endmntent(file); }
};

bool is_ours(std::string_view type) {
    return type == "ckptfs" || type == kFileSystemType;
}

std::string fstab_path(const Environment& environment) {
    return environment("LIBMOUNT_FSTAB").value_or("/etc/fstab");
}

Result<std::optional<MountPlace>> in_fstab(const std::string& directory, const std::string& path) {
    const auto lines = read_fstab(path);
    if (!lines) {
        return lines.error().errno_value == ENOENT ? Result<std::optional<MountPlace>>() : failure(lines.error());
    }
    const std::string wanted = resolved_mount_point(directory);
    const auto found = std::find_if(lines->begin(), lines->end(), [&](const FstabLine& each) {
        return each.directory.starts_with('/') && resolved_mount_point(each.directory) == wanted;
    });
    if (found == lines->end()) {
        return std::optional<MountPlace>();
    }
    auto settings = parse_mount_options(found->options, UnknownOptions::kRefused);
    if (!settings) {
        return failure(settings.error().errno_value,
                       format("{}, the line of {}: {}", escaped(path), escaped(wanted), settings.error().message));
    }
    return MountPlace{found->source, std::move(*settings),
                      format("as {} has it for {}", escaped(path), escaped(wanted))};
}

// The options that the mount's program was started with; nothing if it does not answer, is hidden from this user, or is
// another user's.
std::optional<MountPlace> as_started(const MountEntry& mount) {
    // The PID comes from the kernel, not from the daemon.
    const auto daemon = find_trusted_daemon(mount, kPatience);
    if (!daemon || *daemon <= 0) {
        return std::nullopt;
    }
    const auto command = read_text_file(AT_FDCWD, format("/proc/{}/cmdline", *daemon).c_str());
    auto settings = command ? settings_of_command(*command, mount.source) : failure(errno, std::strerror(errno));
    if (!settings) {
        return std::nullopt;
    }
    return MountPlace{mount.source, std::move(*settings),
                      format("with the options of process {}, which is mounted at {}, and the environment of this one",
                             *daemon, escaped(mount.mount_point))};
}

struct ResolvedPath {
    std::string path;
    bool is_directory = false;
};

ResolvedPath resolved_path(const std::string& path) {
    namespace stdfs = std::filesystem;
    std::error_code problem;
    const stdfs::path found = stdfs::canonical(path, problem);
    if (!problem) {
        return {found.string(), stdfs::is_directory(found, problem)};
    }
    return {stdfs::absolute(path, problem).lexically_normal().string(), path.ends_with('/')};
}

// The path below the source, without a '/' at its beginning, and with one at its end for a directory.
std::string path_in_store(const MountEntry& mount, const ResolvedPath& resolved) {
    std::string path = mount.root + resolved.path.substr(mount.mount_point.size());
    path.erase(0, std::min(path.find_first_not_of('/'), path.size()));
    if (resolved.is_directory && !path.empty() && !path.ends_with('/')) {
        path += '/';
    }
    return path;
}

}  // namespace

Result<std::vector<FstabLine>> read_fstab(const std::string& path) {
    const std::unique_ptr<FILE, CloseTable> file(setmntent(path.c_str(), "re"));
    if (file == nullptr) {
        return failure(errno, format("{}: {}", escaped(path), std::strerror(errno)));
    }
    std::vector<FstabLine> lines;
    std::array<char, kLongestLine> text{};
    mntent entry{};
    while (getmntent_r(file.get(), &entry, text.data(), static_cast<int>(text.size())) != nullptr) {
        if (is_ours(entry.mnt_type)) {
            lines.push_back({entry.mnt_fsname, entry.mnt_dir, entry.mnt_opts});
        }
    }
    return lines;
}

Result<std::vector<Setting>> settings_of_command(std::string_view command, const std::string& source) {
    std::vector<std::string> words;
    while (!command.empty()) {
        const std::size_t end = std::min(command.find('\0'), command.size());
        words.emplace_back(command.substr(0, end));
        command.remove_prefix(std::min(end + 1, command.size()));
    }
    CommandLine line = parse_command_line(std::move(words));
    auto* mount = std::get_if<MountRequest>(&line);
    if (mount == nullptr || mount->source != source) {
        return failure(EINVAL, format("{} is not mounted here", escaped(source)));
    }
    return std::move(mount->settings);
}

bool is_in_fstab(const std::string& source, const std::string& directory, const Environment& environment) {
    const auto place = in_fstab(directory, fstab_path(environment));
    return place && *place && (*place)->source == source;
}

Result<MountPlace> find_place(const std::string& directory, const Environment& environment) {
    const std::string fstab = fstab_path(environment);
    const auto line = in_fstab(directory, fstab);
    const auto mounted = find_mount(directory);
    if (mounted) {
        if (auto started = as_started(*mounted)) {
            return std::move(*started);
        }
        if (!line || !*line || (*line)->source != mounted->source) {
            const uid_t owner = mounted->owner().value_or(0);
            const bool is_trusted = owner == 0 || owner == geteuid();
            return MountPlace{
                mounted->source,
                {},
                format("mounted at {} by {}: give them here", escaped(mounted->mount_point),
                       is_trusted ? "a program that does not tell its options"
                                  : format("user {}, whose options may name programs and are not taken over", owner))};
        }
    }
    if (!line) {
        return failure(line.error());
    }
    if (!*line) {
        return failure(EINVAL, format("{} is neither a mount of ckptfs nor in {}; give s3://BUCKET[/PREFIX]",
                                      escaped(directory), escaped(fstab)));
    }
    return **line;
}

Result<MountPlace> find_place_holding(const std::string& path, const Environment& environment) {
    const auto table = read_mount_table();
    if (!table) {
        return failure(table.error());
    }
    const ResolvedPath resolved = resolved_path(path);
    const auto mount = mount_holding(*table, resolved.path);
    if (!mount || mount->type != kFileSystemType) {
        return failure(EINVAL, format("{} is in no mount of ckptfs; give s3://BUCKET/KEY", escaped(path)));
    }
    // The daemon listens under the name of the mount that it made itself.
    auto place = find_place(made_by_daemon(*table, *mount).mount_point, environment);
    if (place) {
        place->path = path_in_store(*mount, resolved);
    }
    return place;
}

}  // namespace ckptfs
