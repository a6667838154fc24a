// SPDX-License-Identifier: Apache-2.0
// The command line as it was typed, parsed.
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
    // Do everything but mount (-f).
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
    // Wait until it is safe to stop.
    bool wait = false;
    // Repeat every second until interrupted.
    bool watch = false;
};

// `ckptfs wait`.
struct WaitRequest {
    // Paths of anything in mounts.
    std::vector<std::string> paths;
    // Absent: waits as long as it takes.
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
    // Given instead of an object: for gc and doctor a directory that is mounted or in fstab; for the others a file or
    // directory in a mount.
    std::string path;
    // Where the object and the settings come from, for a person; empty if from the command line.
    std::string origin;
    // Print JSON, for machines.
    bool json = false;
    // For gc: leaves out what is younger, and ends what is abandoned.
    Milliseconds older_than{0};
    bool end = false;
    bool forget_disks = false;
    // For doctor: the most MiB to send, and to receive, to measure rates.
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

// Also parses `ckptfs SOURCE DIR -o …` and `mount.ckptfs SOURCE DIR -o …`, as mount(8) calls its helpers.
CommandLine parse_command_line(std::vector<std::string> arguments);

}  // namespace ckptfs
