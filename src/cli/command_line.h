// SPDX-License-Identifier: Apache-2.0
// What was typed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/environment.h"
#include "ckptfs/clock.h"
#include "ckptfs/config.h"
#include "ckptfs/status.h"
#include "config/options.h"
#include "config/source_uri.h"

namespace ckptfs {

struct MountRequest {
    std::string source;
    std::string directory;
    // -o first, then flags, so that flags win.
    std::vector<Setting> settings;
    // Called by mount(8), which has exit codes of its own.
    bool by_mount = false;
    // Everything but the mount.
    bool pretend = false;
    // File of the mount namespace to mount in; empty: our own.
    std::string mount_namespace;
};

struct UnmountRequest {
    std::string directory;
};

struct StatusRequest {
    // Empty: all mounts.
    std::string directory;
    bool json = false;
    // Until it is safe to stop.
    bool wait = false;
    // Again every second, until it is interrupted.
    bool watch = false;
};

// `ckptfs wait`.
struct WaitRequest {
    // Anything in mounts.
    std::vector<std::string> paths;
    // Without one, as long as it takes.
    std::optional<Milliseconds> timeout{};
};

// `ckptfs warm` and `ckptfs drop`.
struct CacheRequest {
    bool drops = false;
    // Files or directories in mounts.
    std::vector<std::string> paths;
    bool json = false;
};

enum class Tool : std::uint8_t { kInspect, kCat, kVerify, kGc, kDoctor };

struct ToolRequest {
    Tool tool = Tool::kInspect;
    ObjectUri object;
    // Instead of an object: of gc and doctor, a directory that is mounted, or that fstab names; of the others, a file
    // or directory in a mount.
    std::string path;
    // For people: where the object and the settings come from, if not from the command line.
    std::string origin;
    // For machines instead of people.
    bool json = false;
    // Of gc.
    Milliseconds older_than{0};
    bool end = false;
    bool forget_disks = false;
    // Of doctor: sent, and received, to measure rates, at most.
    std::uint64_t probe_mib = 0;
    std::vector<Setting> settings;
};

// --help, --version, or a line that could not be understood.
struct Answer {
    std::string text;
    int exit_code = 0;
};

using CommandLine =
    std::variant<Answer, MountRequest, UnmountRequest, StatusRequest, WaitRequest, CacheRequest, ToolRequest>;

// Also `ckptfs SOURCE DIR -o …` and `mount.ckptfs SOURCE DIR -o …`, as mount(8) calls its helpers.
CommandLine parse_command_line(std::vector<std::string> arguments);

// The object and the settings of the request's path; what was typed wins.
Result<ToolRequest> with_place(ToolRequest request, const Environment& environment);

// Environment, -o, flags and defaults together.
Result<Config> make_config(const MountRequest& request, const Environment& environment);
Result<Config> make_config(const ToolRequest& request, const Environment& environment);

}  // namespace ckptfs
