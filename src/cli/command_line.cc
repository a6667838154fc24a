// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "cli/mount_helper.h"
#include "cli/request_config.h"
#include "config/mount_options.h"
#include "config/near_match.h"
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
                          "give up what disks of --ack disk may need that were silent for --older-than");
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

// What was typed, by command.
struct TypedWords {
    MountRequest mount;
    std::vector<std::string> mount_options;
    std::vector<Setting> flags;
    UnmountRequest unmount;
    StatusRequest status;
    WaitRequest wait;
    std::optional<std::string> wait_timeout;
    CacheRequest warm;
    CacheRequest drop;
    std::array<ToolWords, kTools.size()> tools;
};

struct Commands {
    CLI::App* mount;
    CLI::App* unmount;
    CLI::App* status;
    CLI::App* wait;
    CLI::App* warm;
    CLI::App* drop;
    std::array<CLI::App*, kTools.size()> tools;
};

CLI::App* add_mount(CLI::App& app, TypedWords& words) {
    CLI::App* command = app.add_subcommand("mount", "show s3://BUCKET[/PREFIX] at a directory");
    command->add_option("SOURCE", words.mount.source, "s3://BUCKET or s3://BUCKET/PREFIX")->required()->type_name("");
    command->add_option("DIR", words.mount.directory, "an empty directory")->required()->type_name("");
    command->add_option("-o", words.mount_options, "the same options as name=value, for fstab")
        ->type_name("NAME[=VALUE],…")
        ->allow_extra_args(false)
        ->group(std::string(option_table().front().section));
    for (const OptionSpec& spec : option_table()) {
        add_option(*command, spec, words.flags);
    }
    return command;
}

CLI::App* add_unmount(CLI::App& app, UnmountRequest& unmount) {
    CLI::App* command = app.add_subcommand("unmount", "wait for what is being written, then unmount");
    command->add_option("DIR", unmount.directory, "where it is mounted")->required()->type_name("");
    return command;
}

CLI::App* add_status(CLI::App& app, StatusRequest& status) {
    CLI::App* command = app.add_subcommand("status", "say what a mount is doing, and whether it is safe to stop");
    command->add_option("DIR", status.directory, "where it is mounted; without it, all mounts")->type_name("");
    command->add_flag("--json", status.json, "print JSON, one line a mount, for machines");
    CLI::Option* wait = command->add_flag("--wait", status.wait, "wait until it is safe to stop");
    command->add_flag("--watch", status.watch, "repeat every second")->excludes(wait);
    return command;
}

CLI::App* add_wait(CLI::App& app, TypedWords& words) {
    CLI::App* command = app.add_subcommand("wait", "wait until what was acknowledged is in the bucket");
    command->add_option("PATH", words.wait.paths, "anything in a mount")->required()->type_name("");
    command->add_option("--timeout", words.wait_timeout, "give up after so long; without it, never")->type_name("TIME");
    return command;
}

// In the order of --help. `words` are filled as `app` parses.
Commands add_commands(CLI::App& app, TypedWords& words) {
    words.drop.drops = true;
    Commands commands{};
    commands.mount = add_mount(app, words);
    commands.unmount = add_unmount(app, words.unmount);
    commands.status = add_status(app, words.status);
    commands.wait = add_wait(app, words);
    commands.warm = add_kept(app, "warm", "fetch files to --cache-dir, after those that a job reads", words.warm);
    commands.drop = add_kept(app, "drop", "take files from --cache-dir", words.drop);
    for (std::size_t i = 0; i < kTools.size(); ++i) {
        commands.tools[i] = add_tool(app, kTools[i], words.tools[i]);
    }
    return commands;
}

CommandLine wait_request(TypedWords words) {
    if (words.wait_timeout) {
        const auto timeout = parse_duration(*words.wait_timeout);
        if (!timeout) {
            return Answer{format("ckptfs: --timeout: {}\n", timeout.error().message), kUsageError};
        }
        words.wait.timeout = *timeout;
    }
    return std::move(words.wait);
}

CommandLine chosen(const Commands& commands, TypedWords words, const Invocation& call) {
    if (commands.unmount->parsed()) {
        return std::move(words.unmount);
    }
    if (commands.status->parsed()) {
        return std::move(words.status);
    }
    if (commands.wait->parsed()) {
        return wait_request(std::move(words));
    }
    if (commands.warm->parsed() || commands.drop->parsed()) {
        return std::move(commands.warm->parsed() ? words.warm : words.drop);
    }
    for (std::size_t i = 0; i < kTools.size(); ++i) {
        if (commands.tools[i]->parsed()) {
            return tool_request(kTools[i], std::move(words.tools[i]));
        }
    }
    return mount_request(std::move(words.mount), call, words.mount_options, words.flags);
}

}  // namespace

CommandLine parse_command_line(std::vector<std::string> arguments) {
    CLI::App app("ckptfs: S3 as a directory for checkpoints", "ckptfs");
    app.set_version_flag("--version", "ckptfs " CKPTFS_VERSION);
    app.require_subcommand(1);
    TypedWords words;
    const Commands commands = add_commands(app, words);
    Invocation call = understood(std::move(arguments));
    const std::string first_word = call.words.empty() ? "" : call.words.front();
    std::reverse(call.words.begin(), call.words.end());
    try {
        app.parse(std::move(call.words));
    } catch (const CLI::ParseError& problem) {
        return answer_of(app, problem, first_word, call.usage_error());
    }
    return chosen(commands, std::move(words), call);
}

}  // namespace ckptfs
