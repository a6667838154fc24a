// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "cli/mount_helper.h"
#include "cli/mount_place.h"
#include "config/mount_options.h"
#include "config/near_match.h"
#include "config/source_uri.h"
#include "config/values.h"

namespace ckptfs {
namespace {

constexpr int kUsageError = 2;
// Several heartbeats of a mount.
constexpr Milliseconds kYoungestLeftover = std::chrono::hours(1);
// Far more than can be moved in the seconds for which the rates are measured.
constexpr std::uint64_t kMostProbeMib = 65536;

std::string help_text(const OptionSpec& option) {
    std::string text(option.help);
    if (!option.default_text.empty()) {
        text += format(" [{}]", option.default_text);
    }
    return text;
}

void add_option(CLI::App& command, const OptionSpec& spec, std::vector<Setting>& settings) {
    const std::string names =
        (spec.short_name.empty() ? "" : format("-{},", spec.short_name)) + format("--{}", spec.name);
    const std::string name(spec.name);
    CLI::Option* option = nullptr;
    if (spec.is_switch()) {
        // With the value that is typed behind a =, as -o and the environment take it; else "true".
        option = command.add_option_function<std::string>(
            names, [&settings, name](const std::string& value) { settings.emplace_back(name, value); },
            help_text(spec));
        option->expected(0)->type_name("");
    } else {
        option = command.add_option_function<std::string>(
            names, [&settings, name](const std::string& value) { settings.emplace_back(name, value); },
            help_text(spec));
        option->type_name(std::string(spec.value_name));
    }
    // Each occurrence is a setting of its own: for most options the last one counts, lists like --stage add up.
    option->group(std::string(spec.section))->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->trigger_on_parse();
}

// How the program was called, and the words that remain for the parser.
struct Invocation {
    std::vector<std::string> words;
    bool by_mount = false;
    HelperCall helper;

    [[nodiscard]] int usage_error() const { return by_mount ? kMountUsageError : kUsageError; }
};

// For "--name=" the parser would use the next word as the value, even if that is another option.
void split_empty_values(std::vector<std::string>& words) {
    std::vector<std::string> split;
    for (std::string& word : words) {
        const bool is_empty = word.starts_with("--") && word.find('=') == word.size() - 1;
        if (is_empty) {
            word.pop_back();
        }
        const OptionSpec* const spec = is_empty ? find_option(std::string_view(word).substr(2)) : nullptr;
        split.push_back(std::move(word));
        if (is_empty && (spec == nullptr || !spec->is_switch())) {
            split.emplace_back();
        }
    }
    words = std::move(split);
}

Invocation understood(std::vector<std::string> arguments) {
    Invocation call;
    if (is_helper_call(arguments)) {
        call.by_mount = true;
        call.helper = parse_helper_call(arguments);
        call.words = call.helper.words;
    } else if (!arguments.empty()) {
        call.words.assign(arguments.begin() + 1, arguments.end());
        call.by_mount = !call.words.empty() && call.words.front().starts_with("s3://");
    }
    if (call.by_mount) {
        call.words.insert(call.words.begin(), "mount");
    }
    split_empty_values(call.words);
    return call;
}

struct ToolCommand {
    Tool tool;
    const char* name;
    const char* help;
    const char* source;
    const char* source_help;
    // A whole bucket may be the source, too.
    bool takes_bucket;
    bool has_json;
};
constexpr auto kTools = std::to_array<ToolCommand>({
    {Tool::kInspect, "inspect", "say how a file is stored and where its bytes go", "OBJECT",
     "s3://BUCKET/KEY, or a file in a mount", false, true},
    {Tool::kCat, "cat", "write a file to standard output, whole and checked", "OBJECT",
     "s3://BUCKET/KEY, or a file in a mount", false, false},
    {Tool::kVerify, "verify", "read everything and check every frame", "SOURCE",
     "s3://BUCKET[/PREFIX], s3://BUCKET/KEY, or what is in a mount", true, true},
    {Tool::kGc, "gc", "list abandoned uploads and files, and remove them if asked to", "SOURCE",
     "s3://BUCKET[/PREFIX], or a directory that is mounted or in /etc/fstab", true, true},
    {Tool::kDoctor, "doctor", "check a store and this machine for everything that a mount needs", "SOURCE",
     "s3://BUCKET[/PREFIX], or a directory that is mounted or in /etc/fstab", true, true},
});

// Everything that is typed behind a tool's name.
struct ToolWords {
    std::string source;
    bool json = false;
    std::string older_than = "24h";
    bool end = false;
    bool forget_disks = false;
    std::string probe_mib = "256";
    std::vector<Setting> settings;
};

// Options of doctor besides those of the store.
bool is_of_doctor(const OptionSpec& option) {
    constexpr auto kNames =
        std::to_array<std::string_view>({"read-only", "staging-dir", "state-dir", "cache-dir", "passthrough"});
    return std::find(kNames.begin(), kNames.end(), option.name) != kNames.end();
}

bool takes(Tool tool, const OptionSpec& option) {
    return option.section == kStoreSection || (tool == Tool::kDoctor && is_of_doctor(option));
}

CLI::App* add_tool(CLI::App& app, const ToolCommand& tool, ToolWords& words) {
    CLI::App* command = app.add_subcommand(tool.name, tool.help);
    command->add_option(tool.source, words.source, tool.source_help)->required()->type_name("");
    if (tool.has_json) {
        command->add_flag("--json", words.json, "print JSON, for machines");
    }
    if (tool.tool == Tool::kGc) {
        command->add_option("--older-than", words.older_than, "ignore anything begun more recently [24h]")
            ->type_name("TIME");
        command->add_flag("--end", words.end, "abort or remove what is abandoned, instead of only listing it");
        command->add_flag("--forget-disks", words.forget_disks,
                          "treat disks of --ack disk that were silent for as long as lost");
    }
    if (tool.tool == Tool::kDoctor) {
        command->add_option("--probe-mib", words.probe_mib, "maximum MiB to send, and to receive, for the rates [256]")
            ->type_name("N");
    }
    for (const OptionSpec& spec : option_table()) {
        if (takes(tool.tool, spec)) {
            add_option(*command, spec, words.settings);
        }
    }
    return command;
}

// A word without a slash is a path only if it is "." or "..", or if the tool takes no bucket: otherwise it is a bucket
// whose s3:// was forgotten.
bool is_path(const ToolCommand& tool, std::string_view word) {
    const bool may_be_bucket =
        tool.takes_bucket && word.find('/') == std::string_view::npos && word != "." && word != "..";
    return !word.starts_with("s3:") && !may_be_bucket;
}

CommandLine tool_request(const ToolCommand& tool, ToolWords words) {
    const bool by_path = is_path(tool, words.source);
    auto object = by_path ? Result<ObjectUri>(ObjectUri()) : parse_object_uri(words.source);
    if (object && !by_path && object->key.empty() && !tool.takes_bucket) {
        object =
            failure(EINVAL, format("\"{}\" names no object; expected {}", escaped(words.source), tool.source_help));
    }
    if (!object) {
        return Answer{format("ckptfs: {}\n", object.error().message), kUsageError};
    }
    const auto older_than = parse_duration(words.older_than);
    if (!older_than) {
        return Answer{format("ckptfs: --older-than: {}\n", older_than.error().message), kUsageError};
    }
    if (*older_than < kYoungestLeftover) {
        return Answer{
            "ckptfs: --older-than: at least 1h; a mount is not heard of earlier, and its uploads look abandoned\n",
            kUsageError};
    }
    const auto probe_mib = parse_number(words.probe_mib, 0, kMostProbeMib);
    if (!probe_mib) {
        return Answer{format("ckptfs: --probe-mib: {}\n", probe_mib.error().message), kUsageError};
    }
    ToolRequest request;
    request.tool = tool.tool;
    request.object = std::move(*object);
    request.path = by_path ? std::move(words.source) : "";
    request.json = words.json;
    request.older_than = *older_than;
    request.end = words.end;
    request.forget_disks = words.forget_disks;
    request.probe_mib = *probe_mib;
    request.settings = std::move(words.settings);
    return request;
}

// The first of the words that the parser did not recognise that looks like an option.
std::string unknown_option(const CLI::App& command) {
    for (const std::string& word : command.remaining()) {
        if (word.starts_with("--") && word.size() > 2) {
            return word.substr(2, word.find('=') - 2);
        }
    }
    return {};
}

std::vector<std::string> option_names(const CLI::App& command) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
        names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
    }
    return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
        names.push_back(command->get_name());
    }
    return names;
}

// Empty if the parser's own message is better.
std::string unknown_name(const CLI::App& app, const std::string& first_word) {
    const std::vector<CLI::App*> commands = app.get_subcommands();
    if (commands.empty()) {
        return first_word.empty() || first_word.starts_with('-')
                   ? std::string()
                   : format("there is no command {}{} See ckptfs --help", escaped(first_word),
                            did_you_mean("", first_word, command_names(app)));
    }
    const CLI::App& command = *commands.front();
    const std::string option = unknown_option(command);
    return option.empty() ? option
                          : format("there is no option --{}{} See ckptfs {} --help", escaped(option),
                                   did_you_mean("--", option, option_names(command)), command.get_name());
}

CLI::App* add_kept(CLI::App& app, const std::string& name, const std::string& description, CacheRequest& request) {
    CLI::App* command = app.add_subcommand(name, description);
    command->add_option("PATH", request.paths, "files or directories in a mount")->required()->type_name("");
    command->add_flag("--json", request.json, "print JSON, for machines");
    return command;
}

Answer answer_of(CLI::App& app, const CLI::ParseError& problem, const std::string& first_word, int usage_error) {
    std::stringstream out;
    std::stringstream err;
    const int code = app.exit(problem, out, err);
    if (code == 0) {
        return {out.str(), 0};
    }
    if (const std::string unknown = unknown_name(app, first_word); !unknown.empty()) {
        return {format("ckptfs: {}\n", unknown), usage_error};
    }
    return {format("ckptfs: {}; see ckptfs --help\n", escaped(problem.what())), usage_error};
}

CommandLine mount_request(MountRequest request, const Invocation& call, const std::vector<std::string>& mount_options,
                          const std::vector<Setting>& flags) {
    request.by_mount = call.by_mount;
    request.pretend = call.helper.pretend;
    request.mount_namespace = call.helper.mount_namespace;
    for (const std::string& text : mount_options) {
        const auto settings =
            parse_mount_options(text, call.helper.sloppy ? UnknownOptions::kIgnored : UnknownOptions::kRefused);
        if (!settings) {
            return Answer{format("ckptfs: {}\n", settings.error().message), call.usage_error()};
        }
        request.settings.insert(request.settings.end(), settings->begin(), settings->end());
    }
    request.settings.insert(request.settings.end(), flags.begin(), flags.end());
    return request;
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

CommandLine parse_command_line(std::vector<std::string> arguments) {
    CLI::App app("ckptfs: S3 as a directory for checkpoints", "ckptfs");
    app.set_version_flag("--version", "ckptfs " CKPTFS_VERSION);
    app.require_subcommand(1);

    MountRequest mount;
    std::vector<std::string> mount_options;
    std::vector<Setting> flags;
    CLI::App* mount_command = app.add_subcommand("mount", "show s3://BUCKET[/PREFIX] at a directory");
    mount_command->add_option("SOURCE", mount.source, "s3://BUCKET or s3://BUCKET/PREFIX")->required()->type_name("");
    mount_command->add_option("DIR", mount.directory, "an empty directory")->required()->type_name("");
    mount_command->add_option("-o", mount_options, "the same options as name=value, for fstab")
        ->type_name("NAME[=VALUE],…")
        ->allow_extra_args(false)
        ->group(std::string(option_table().front().section));
    for (const OptionSpec& spec : option_table()) {
        add_option(*mount_command, spec, flags);
    }

    UnmountRequest unmount;
    CLI::App* unmount_command = app.add_subcommand("unmount", "wait for what is being written, then unmount");
    unmount_command->add_option("DIR", unmount.directory, "where it is mounted")->required()->type_name("");

    StatusRequest status;
    CLI::App* status_command =
        app.add_subcommand("status", "say what a mount is doing, and whether it is safe to stop");
    status_command->add_option("DIR", status.directory, "where it is mounted; without it, all mounts")->type_name("");
    status_command->add_flag("--json", status.json, "print JSON, one line a mount, for machines");
    CLI::Option* wait = status_command->add_flag("--wait", status.wait, "wait until it is safe to stop");
    status_command->add_flag("--watch", status.watch, "repeat every second")->excludes(wait);

    WaitRequest sent;
    std::optional<std::string> sent_within;
    CLI::App* wait_command = app.add_subcommand("wait", "wait until what was acknowledged is in the bucket");
    wait_command->add_option("PATH", sent.paths, "anything in a mount")->required()->type_name("");
    wait_command->add_option("--timeout", sent_within, "give up after so long; without it, never")->type_name("TIME");

    CacheRequest warm;
    CLI::App* warm_command = add_kept(app, "warm", "fetch files to --cache-dir, after those that a job reads", warm);
    CacheRequest drop;
    drop.drops = true;
    CLI::App* drop_command = add_kept(app, "drop", "take files from --cache-dir", drop);

    std::array<ToolWords, kTools.size()> tool_words;
    std::array<CLI::App*, kTools.size()> tool_commands{};
    for (std::size_t i = 0; i < kTools.size(); ++i) {
        tool_commands[i] = add_tool(app, kTools[i], tool_words[i]);
    }

    Invocation call = understood(std::move(arguments));
    const std::string first_word = call.words.empty() ? "" : call.words.front();
    std::reverse(call.words.begin(), call.words.end());
    try {
        app.parse(std::move(call.words));
    } catch (const CLI::ParseError& problem) {
        return answer_of(app, problem, first_word, call.usage_error());
    }
    if (unmount_command->parsed()) {
        return unmount;
    }
    if (status_command->parsed()) {
        return status;
    }
    if (wait_command->parsed()) {
        const auto within = sent_within ? parse_duration(*sent_within) : Result<Milliseconds>(Milliseconds(0));
        if (!within) {
            return Answer{format("ckptfs: --timeout: {}\n", within.error().message), kUsageError};
        }
        sent.timeout = sent_within ? std::optional(*within) : std::nullopt;
        return sent;
    }
    if (warm_command->parsed() || drop_command->parsed()) {
        return warm_command->parsed() ? warm : drop;
    }
    for (std::size_t i = 0; i < kTools.size(); ++i) {
        if (tool_commands[i]->parsed()) {
            return tool_request(kTools[i], std::move(tool_words[i]));
        }
    }
    return mount_request(std::move(mount), call, mount_options, flags);
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
