// SPDX-License-Identifier: Apache-2.0
#include "cli/unmount_command.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/text.h"
#include "ckptfs/log.h"
#include "cli/local_checks.h"
#include "fuse/mount_table.h"

namespace ckptfs {
namespace {

constexpr std::string_view kLost = "lost ";

std::optional<std::string> environment(const char* name) {
    // Before any thread is started.
    const char* value = std::getenv(name);
    return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

Result<MountEntry> find_mount(const std::string& directory) {
    const auto table = read_mount_table();
    if (!table) {
        return failure(table.error());
    }
    const std::string mount_point = resolved_mount_point(directory);
    auto mounted = mount_at(*table, mount_point);
    if (!mounted || mounted->type != kFileSystemType) {
        // The last part may be a symbolic link; no mount of ours is there, so that it can be resolved.
        std::error_code problem;
        const auto resolved = std::filesystem::canonical(mount_point, problem);
        mounted = problem ? std::nullopt : mount_at(*table, resolved.string());
    }
    if (!mounted || mounted->type != kFileSystemType) {
        return failure(EINVAL, format("no ckptfs is mounted at {}", escaped(directory)));
    }
    return *mounted;
}

}  // namespace

std::string progress_text(const DrainProgress& progress) {
    constexpr double kMebibyte = 1048576;
    return format("saving {} {}: {:.1f} of {:.1f} MiB in the store", progress.files,
                  progress.files == 1 ? "file" : "files", static_cast<double>(progress.bytes_in_store) / kMebibyte,
                  static_cast<double>(progress.bytes_acknowledged) / kMebibyte);
}

void UnmountReport::print(const std::string& text) const {
    // A terminal that is gone is no reason to fail.
    static_cast<void>(!write(output_, text.data(), text.size()));
}

void UnmountReport::clear_progress() {
    if (progress_shown_) {
        // ECMA-48: to the first column, erase the line.
        print("\r\x1b[K");
        progress_shown_ = false;
    }
}

void UnmountReport::on_line(std::string_view line) {
    if (line == "done") {
        done_ = true;
    } else if (line.starts_with(kLost)) {
        clear_progress();
        ++lost_;
        print(format("ckptfs: not saved: {}\n", escaped(line.substr(kLost.size()))));
    } else if (const auto progress = parse_progress(line); progress && show_progress_ && progress->files > 0) {
        clear_progress();
        print(progress_text(*progress));
        progress_shown_ = true;
    }
}

int UnmountReport::finish() {
    clear_progress();
    if (!done_) {
        print("ckptfs: the daemon ended before everything was saved; see its log\n");
    }
    return done_ && lost_ == 0 ? 0 : 1;
}

int unmount_command(const std::string& directory) {
    UnmountReport report(isatty(STDERR_FILENO) != 0, STDERR_FILENO);
    const auto mounted = find_mount(directory);
    Status asked = mounted ? Status() : Status(failure(mounted.error()));
    if (mounted) {
        const std::string sockets = control_directory(mounted->owner().value_or(0), getuid(), environment);
        asked = call_daemon(control_path(sockets, mounted->mount_point), "unmount",
                            [&](std::string_view line) { report.on_line(line); });
    }
    if (!asked) {
        const std::string hint =
            mounted ? format("; if its program has ended: fusermount3 -u {}", escaped(directory)) : "";
        const std::string line = format("ckptfs: {}{}\n", asked.error().message, hint);
        static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
        return 1;
    }
    const int ended = report.finish();
    const auto table = read_mount_table();
    const auto left = table ? mount_at(*table, mounted->mount_point) : std::nullopt;
    if (!left || left->mount_id != mounted->mount_id) {
        return ended;
    }
    const std::string line = format("ckptfs: {} is still mounted, with nothing behind it; as root, run: umount {}\n",
                                    escaped(directory), escaped(directory));
    static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
    return 1;
}

}  // namespace ckptfs
