// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>

#include "base/text.h"
#include "ckptfs/log.h"
#include "cli/commands.h"
#include "cli/unmount_report.h"
#include "daemon/mounted_daemon.h"
#include "fuse/mount_table.h"

namespace ckptfs {
namespace {

// The daemon reports its progress several times a second; what comes after the last report is short.
constexpr std::chrono::seconds kPatience{60};

}  // namespace

int unmount_command(const std::string& directory) {
    UnmountReport report(isatty(STDERR_FILENO) != 0, STDERR_FILENO);
    const auto mounted = find_mount_to_end(directory);
    Status asked = mounted ? Status() : Status(failure(mounted.error()));
    if (mounted) {
        const auto answered =
            ask_daemon(*mounted, "unmount", kPatience, [&](std::string_view line) { report.on_line(line); });
        asked = answered ? Status() : failure(answered.error());
    }
    if (!asked) {
        const std::string line = format("ckptfs: {}\n", asked.error().message);
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
