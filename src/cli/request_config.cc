// SPDX-License-Identifier: Apache-2.0
#include "cli/request_config.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "cli/mount_place.h"
#include "config/options.h"
#include "config/source_uri.h"

namespace ckptfs {
namespace {

// Options of doctor besides those of the store.
bool is_of_doctor(const OptionSpec& option) {
    constexpr auto kNames =
        std::to_array<std::string_view>({"read-only", "staging-dir", "state-dir", "cache-dir", "passthrough"});
    return std::find(kNames.begin(), kNames.end(), option.name) != kNames.end();
}

// Refuses relative paths: the mount resolved them in the directory where it was started. In this process's directory
// they might be files of another user, with credentials that name a program.
Status check_paths(const MountPlace& place, const std::vector<Setting>& typed) {
    std::map<std::string, std::string> paths;
    for (const auto& [name, value] : place.settings) {
        if (const OptionSpec* option = find_option(name); option != nullptr && option->is_path()) {
            paths[name] = value;
        }
    }
    for (const Setting& each : typed) {
        paths.erase(each.first);
    }
    for (const auto& [name, path] : paths) {
        if (!path.empty() && !path.starts_with('/')) {
            return failure(EINVAL, format("{}: --{} {} is relative to a directory that is not known; give --{} here",
                                          place.origin, name, escaped(path), name));
        }
    }
    return {};
}

// Applies the settings that every command takes.
Status configure(Config& config, const std::vector<Setting>& settings, const Environment& environment) {
    if (const auto bundle = environment("AWS_CA_BUNDLE")) {
        config.store.ca_bundle = *bundle;
    }
    for (const auto& step : {apply_environment(config, environment), apply_settings(config, settings)}) {
        if (!step) {
            return step;
        }
    }
    // Read-only also if mount(8) passes rw.
    config.names.read_only = config.names.read_only || config.disk.cache_only;
    return check_config(config);
}

}  // namespace

bool takes(Tool tool, const OptionSpec& option) {
    return option.section == kStoreSection || (tool == Tool::kDoctor && is_of_doctor(option));
}

Result<Config> make_config(const MountRequest& request, const Environment& environment) {
    const auto source = parse_source(request.source);
    if (!source) {
        return failure(source.error());
    }
    Config config;
    config.mount.source = request.source;
    config.mount.mount_point = request.directory;
    config.store.bucket = source->bucket;
    config.store.prefix = source->prefix;
    config.names.uid = getuid();
    config.names.gid = getgid();
    if (auto valid = configure(config, request.settings, environment); !valid) {
        return failure(valid.error());
    }
    return config;
}

Result<ToolRequest> with_place(ToolRequest request, const Environment& environment) {
    const bool is_mount = request.tool == Tool::kGc || request.tool == Tool::kDoctor;
    auto place = (is_mount ? find_place : find_place_holding)(request.path, environment);
    if (!place) {
        return failure(place.error());
    }
    const bool needs_file = request.tool == Tool::kInspect || request.tool == Tool::kCat;
    if (needs_file && (place->path.empty() || place->path.ends_with('/'))) {
        return failure(EISDIR, format("{} is a directory; give a file in it", escaped(request.path)));
    }
    auto source = parse_source(place->source);
    if (!source) {
        return failure(source.error());
    }
    // Refuses what a mount would refuse, also options that this command does not use.
    MountRequest mount;
    mount.source = place->source;
    mount.directory = request.path;
    mount.settings = place->settings;
    if (const auto config = make_config(mount, environment); !config) {
        return failure(config.error().errno_value, format("{}: {}", place->origin, config.error().message));
    }
    request.object = {std::move(source->bucket), source->prefix + place->path};
    // The mount's access log is written by the mount alone.
    std::erase_if(place->settings, [&request](const Setting& each) {
        const OptionSpec* option = find_option(each.first);
        return option == nullptr || each.first == "access-log" || !takes(request.tool, *option);
    });
    if (auto paths = check_paths(*place, request.settings); !paths) {
        return failure(paths.error());
    }
    request.origin = std::move(place->origin);
    request.settings.insert(request.settings.begin(), place->settings.begin(), place->settings.end());
    return request;
}

Result<Config> make_config(const ToolRequest& request, const Environment& environment) {
    Config config;
    config.store.bucket = request.object.bucket;
    // The prefix that a mount of this key would have.
    config.store.prefix = directory_prefix(request.object.key);
    if (auto valid = configure(config, request.settings, environment); !valid) {
        return failure(valid.error());
    }
    return config;
}

}  // namespace ckptfs
