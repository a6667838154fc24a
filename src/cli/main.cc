// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <variant>
#include <vector>

#include "base/environment.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/mount_helper.h"
#include "cli/request_config.h"
#include "daemon/background.h"

namespace ckptfs {
namespace {

// Opens standard streams that the caller has closed: else the next file opened would take their place, and would be
// replaced in the background.
void open_standard_streams() {
    int opened = open("/dev/null", O_RDWR);
    while (opened >= 0 && opened < STDERR_FILENO) {
        opened = open("/dev/null", O_RDWR);
    }
    if (opened > STDERR_FILENO) {
        close(opened);
    }
}

int run(const Answer& answer) {
    std::fputs(answer.text.c_str(), answer.exit_code == 0 ? stdout : stderr);
    return answer.exit_code;
}

int run(const MountRequest& request) {
    // Entered first: names of users, and files, are those of the namespace.
    if (!request.mount_namespace.empty()) {
        if (auto entered = enter_mount_namespace(request.mount_namespace); !entered) {
            complain("ckptfs: " + entered.error().message);
            return kMountFailed;
        }
    }
    auto config = make_config(request, process_environment());
    if (!config) {
        complain("ckptfs: " + config.error().message);
        return request.by_mount ? kMountUsageError : 2;
    }
    return request.pretend ? 0 : mount_command(std::move(*config), request.by_mount ? kMountFailed : 1);
}

int run(const UnmountRequest& request) {
    return unmount_command(request.directory);
}

int run(const StatusRequest& request) {
    return status_command(request);
}

int run(const WaitRequest& request) {
    return wait_command(request);
}

int run(const CacheRequest& request) {
    return cache_command(request);
}

int run(const ToolRequest& typed) {
    const auto placed = typed.path.empty() ? Result<ToolRequest>(typed) : with_place(typed, process_environment());
    if (!placed) {
        std::fprintf(stderr, "ckptfs: %s\n", placed.error().message.c_str());
        return 2;
    }
    const ToolRequest& request = *placed;
    const auto config = make_config(request, process_environment());
    if (!config) {
        std::fprintf(stderr, "ckptfs: %s\n", config.error().message.c_str());
        return 2;
    }
    return tool_command(request, *config);
}

}  // namespace
}  // namespace ckptfs

int main(int argc, char** argv) {
    ckptfs::open_standard_streams();
    // The parent may have ignored it; then the exit status of the programs that we run would be lost.
    std::signal(SIGCHLD, SIG_DFL);
    try {
        const ckptfs::CommandLine line = ckptfs::parse_command_line(std::vector<std::string>(argv, argv + argc));
        return std::visit([](const auto& request) { return ckptfs::run(request); }, line);
    } catch (const std::exception& error) {
        // Our code does not throw; what remains is a lack of memory.
        std::fprintf(stderr, "ckptfs: %s\n", error.what());
        return 1;
    }
}
