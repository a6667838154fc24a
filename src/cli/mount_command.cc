// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <utility>

#include "base/digest.h"
#include "base/environment.h"
#include "base/executors.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "cli/commands.h"
#include "cli/mount_place.h"
#include "config/scale.h"
#include "daemon/background.h"
#include "daemon/control.h"
#include "daemon/daemon.h"
#include "daemon/local_checks.h"
#include "daemon/takeover.h"
#include "fuse/mount_table.h"
#include "journal/mount_journal.h"

namespace ckptfs {
namespace {

std::string examination_of(const MountConfig& mount) {
    return is_in_fstab(mount.source, mount.mount_point, process_environment())
               ? format("ckptfs doctor {} says more", escaped(mount.mount_point))
               : format("ckptfs doctor {} says more, with the same options", escaped(mount.source));
}

LogLevel log_level(const std::string& name) {
    if (name == "error") {
        return LogLevel::kError;
    }
    if (name == "warning") {
        return LogLevel::kWarning;
    }
    return name == "debug" ? LogLevel::kDebug : LogLevel::kInfo;
}

TakeoverSystem system_for_takeover() {
    return takeover_system([] { return make_control_directory(process_environment()); });
}

// Makes the paths in these variables absolute, like those of options: they are relative to where the command was typed.
// Call it before any thread is started.
void resolve_variables() {
    for (const char* name : {"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
                             "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"}) {
        const auto path = process_environment()(name);
        std::error_code problem;
        const std::filesystem::path absolute = path ? std::filesystem::absolute(*path, problem) : "";
        if (path && !problem) {
            setenv(name, absolute.c_str(), 1);
        }
    }
}

// Resolves every path: the daemon's directory will be "/".
Status check_this_machine(Config& config) {
    const std::string place = resolved_mount_point(config.mount.mount_point);
    const auto dead = is_ours_to_take_back(place, config.mount.source, getuid(), system_for_takeover());
    if (!dead) {
        return failure(dead.error());
    }
    const auto table = read_mount_table();
    if (!table) {
        return failure(table.error());
    }
    // Nothing can be checked below a dead mount.
    auto mount_point = *dead ? place : check_mount_point(config.mount.mount_point, *table);
    if (!mount_point) {
        return failure(mount_point.error());
    }
    config.mount.mount_point = *mount_point;
    for (std::string* path :
         {&config.mount.log_file, &config.mount.metrics_file, &config.write.staging_dir, &config.disk.directory,
          &config.store.ca_bundle, &config.store.credentials_file, &config.store.access_log, &config.mount.state_dir}) {
        std::error_code problem;
        if (!path->empty()) {
            *path = std::filesystem::absolute(*path, problem).string();
        }
    }
    const auto state = state_directory(config.mount.state_dir, getuid(), process_environment());
    for (const std::string& path : {config.mount.log_file, config.mount.metrics_file, config.store.access_log,
                                    config.write.staging_dir, config.disk.directory, state.value_or("")}) {
        if (auto outside = check_outside(path, config.mount.mount_point); !outside) {
            return outside;
        }
    }
    if (auto staging = check_staging_directory(config.write.staging_dir, *table); !staging) {
        return staging;
    }
    if (auto cache = check_cache_directory(config.disk.directory, *table); !cache) {
        return cache;
    }
    return check_fuse("/dev/fuse", geteuid() == 0, search_path(process_environment()));
}

Status redirect_log(const MountConfig& config, Readiness& readiness) {
    set_log_level(log_level(config.log_level));
    if (!config.log_file.empty()) {
        return log_to_file(config.log_file);
    }
    if (!config.foreground && !log_to_journal()) {
        readiness.warn("ckptfs: no journal is available, so later errors will not be logged; use --log-file");
    }
    if (config.foreground && is_read_by_journal(STDERR_FILENO, process_environment())) {
        set_log_reader(LogReader::kJournal);
    }
    return {};
}

}  // namespace

int mount_command(Config config, int failed) {
    Readiness readiness;
    const auto fail = [&readiness, failed](const Error& error) {
        readiness.failed(format("ckptfs: {}", error.message));
        return failed;
    };
    keep_digests_until_exit();
    resolve_variables();
    if (auto checked = check_this_machine(config); !checked) {
        return fail(checked.error());
    }
    if (!config.mount.foreground) {
        auto background = go_to_background(failed);
        if (!background) {
            return fail(background.error());
        }
        readiness = std::move(*background);
    }
    if (auto logging = redirect_log(config.mount, readiness); !logging) {
        return fail(logging.error());
    }
    // Called before memory is hidden: /proc hides a process that cannot be dumped, and its children.
    say_what_cannot_be_told();
    hide_memory();
    allow_open_files();
    umask(077);
    std::signal(SIGPIPE, SIG_IGN);
    if (chdir("/") != 0) {
        return fail(failure(errno, format("cannot change to /: {}", std::strerror(errno))).value());
    }
    const bool terminal_is_the_log = config.mount.foreground && config.mount.log_file.empty();
    const std::function<std::string()> examination = [mount = config.mount] { return examination_of(mount); };
    Daemon daemon(scaled(std::move(config), processor_count()), std::move(readiness), examination);
    if (auto started = daemon.start(); !started) {
        if (!terminal_is_the_log) {
            log_error(started.error().message);
        }
        daemon.readiness().failed(format("ckptfs: {}", started.error().message));
        return failed;
    }
    return daemon.serve_until_the_end();
}

}  // namespace ckptfs
