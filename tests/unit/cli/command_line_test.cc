// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/text.h"
#include "cli/request_config.h"
#include "config/options.h"

namespace ckptfs {
namespace {

const Environment kNothing = [](const char* /*name*/) { return std::nullopt; };

Result<Config> configure(const std::vector<std::string>& extra, const Environment& environment = kNothing) {
    std::vector<std::string> words{"ckptfs", "mount", "s3://bucket/run", "/mnt"};
    words.insert(words.end(), extra.begin(), extra.end());
    const CommandLine line = parse_command_line(words);
    if (const auto* answer = std::get_if<Answer>(&line)) {
        return failure(EINVAL, answer->text);
    }
    return make_config(std::get<MountRequest>(line), environment);
}

std::string message(const std::vector<std::string>& extra) {
    const auto config = configure(extra);
    return config ? "" : config.error().message;
}

TEST(CommandLine, TakesFlags) {
    const auto config = configure({"--endpoint-url", "http://localhost:9000", "--force-path-style", "-f", "--read-only",
                                   "--max-memory=128M", "--part-size", "8M", "--file-mode", "0640", "--keep-on-kill",
                                   "*.log,*.txt", "--metadata-ttl", "500ms"});
    ASSERT_TRUE(config);
    EXPECT_EQ(config->store.bucket, "bucket");
    EXPECT_EQ(config->store.prefix, "run/");
    EXPECT_EQ(config->mount.source, "s3://bucket/run");
    EXPECT_EQ(config->mount.mount_point, "/mnt");
    EXPECT_EQ(config->store.endpoint_url, "http://localhost:9000");
    EXPECT_EQ(config->store.addressing, AddressingStyle::kPath);
    EXPECT_TRUE(config->mount.foreground);
    EXPECT_TRUE(config->names.read_only);
    EXPECT_EQ(config->mount.max_memory, std::uint64_t{128} << 20);
    EXPECT_EQ(config->write.part_size, std::uint64_t{8} << 20);
    EXPECT_EQ(config->names.file_mode, 0640U);
    EXPECT_EQ(config->write.keep_on_kill, (std::vector<std::string>{"*.log", "*.txt"}));
    EXPECT_EQ(config->names.metadata_ttl, Milliseconds(500));
}

TEST(CommandLine, TakesTheLastOfSeveralAndAllOfAList) {
    const auto config = configure(
        {"-o", "stage=*.a", "--stage", "*.b,*.c", "--stage", "*.d", "--part-size", "8M", "--part-size", "16M"},
        [](const char* name) -> std::optional<std::string> {
            return std::string(name) == "CKPTFS_STAGE" ? std::optional("*.e") : std::nullopt;
        });
    ASSERT_TRUE(config);
    EXPECT_EQ(config->write.stage, (std::vector<std::string>{"*.e", "*.a", "*.b", "*.c", "*.d"}));
    EXPECT_EQ(config->write.part_size, std::uint64_t{16} << 20);
}

TEST(CommandLine, TakesMountOptionsAsFstabWritesThem) {
    const auto config = configure(
        {"-o", "_netdev,nofail,ro,allow_other,max_memory=96M,x-systemd.automount", "-o", "keep-on-kill=*.a\\,*.b"});
    ASSERT_TRUE(config);
    // mount.fuse3(8) adds the first two, whatever fstab says.
    EXPECT_TRUE(configure({"-o", "dev,suid,noexec,sync,lazytime,user=somebody,comment=for tests,X-mount.mkdir"}));
    EXPECT_TRUE(config->names.read_only);
    EXPECT_TRUE(config->mount.allow_other);
    EXPECT_EQ(config->mount.max_memory, std::uint64_t{96} << 20);
    EXPECT_EQ(config->write.keep_on_kill, (std::vector<std::string>{"*.a", "*.b"}));
}

TEST(CommandLine, AFlagBeatsMountOptionsBeatTheEnvironment) {
    const std::map<std::string, std::string> variables{{"CKPTFS_FUSE_THREADS", "3"},
                                                       {"CKPTFS_HTTP_THREADS", "3"},
                                                       {"CKPTFS_MAX_CONNECTIONS", "3"},
                                                       {"AWS_CA_BUNDLE", "/ca.pem"}};
    const auto config = configure({"--fuse-threads", "5", "-o", "fuse-threads=4,http-threads=4"},
                                  [&](const char* name) -> std::optional<std::string> {
                                      const auto found = variables.find(name);
                                      return found == variables.end() ? std::nullopt : std::optional(found->second);
                                  });
    ASSERT_TRUE(config);
    EXPECT_EQ(config->mount.fuse_threads, 5);
    EXPECT_EQ(config->store.http_threads, 4);
    EXPECT_EQ(config->store.max_connections, 3);
    EXPECT_EQ(config->store.ca_bundle, "/ca.pem");
}

TEST(CommandLine, UnderstandsHowMountCallsItsHelpers) {
    const CommandLine helper = parse_command_line({"/usr/sbin/mount.ckptfs", "s3://bucket", "/mnt", "-v", "-nf", "-N",
                                                   "/proc/7/ns/mnt", "-o", "rw,part_size=8M", "-t", "ckptfs"});
    const auto* request = std::get_if<MountRequest>(&helper);
    ASSERT_NE(request, nullptr);
    EXPECT_EQ(request->source, "s3://bucket");
    EXPECT_EQ(request->settings, (std::vector<Setting>{{"read-only", "no"}, {"part-size", "8M"}}));
    EXPECT_TRUE(request->by_mount);
    EXPECT_TRUE(request->pretend);
    EXPECT_EQ(request->mount_namespace, "/proc/7/ns/mnt");

    const CommandLine direct = parse_command_line({"ckptfs", "s3://bucket", "/mnt", "-f", "-o", "ro"});
    ASSERT_TRUE(std::holds_alternative<MountRequest>(direct));
    EXPECT_EQ(std::get<MountRequest>(direct).directory, "/mnt");
    EXPECT_TRUE(std::get<MountRequest>(direct).by_mount);
    EXPECT_FALSE(std::get<MountRequest>(direct).pretend);
}

TEST(CommandLine, AnswersMountWithItsExitCodes) {
    const auto exit_code = [](const std::vector<std::string>& words) {
        const CommandLine line = parse_command_line(words);
        return std::holds_alternative<Answer>(line) ? std::get<Answer>(line).exit_code : 0;
    };
    EXPECT_EQ(exit_code({"mount.ckptfs", "s3://bucket", "/mnt", "-o", "nonsense"}), 1);
    EXPECT_EQ(exit_code({"mount.ckptfs", "s3://bucket", "/mnt", "-s", "-o", "nonsense,ro"}), 0);
    EXPECT_EQ(exit_code({"mount.ckptfs", "s3://bucket", "/mnt", "-s", "-o", "part_size"}), 1);
    EXPECT_EQ(exit_code({"mount.ckptfs", "s3://bucket"}), 1);
    EXPECT_EQ(exit_code({"ckptfs", "s3://bucket", "/mnt", "-o", "nonsense"}), 1);
    EXPECT_EQ(exit_code({"ckptfs", "mount", "s3://bucket", "/mnt", "-o", "nonsense"}), 2);
}

TEST(CommandLine, TheLastOfTwoOppositeMountOptionsCounts) {
    EXPECT_FALSE(configure({"-o", "ro,rw"}).value().names.read_only);
    EXPECT_TRUE(configure({"-o", "rw,ro"}).value().names.read_only);
    EXPECT_TRUE(configure({"-o", "user,noexec"}).value().mount.no_exec);
    EXPECT_FALSE(configure({"-o", "noexec,exec"}).value().mount.no_exec);
}

TEST(CommandLine, RefusesToChangeAMountThatRuns) {
    EXPECT_NE(message({"-o", "remount,ro"}).find("unmount it and mount it again"), std::string::npos);
}

TEST(CommandLine, HelpNamesEveryOption) {
    const CommandLine line = parse_command_line({"ckptfs", "mount", "--help"});
    const auto& answer = std::get<Answer>(line);
    EXPECT_EQ(answer.exit_code, 0);
    for (const OptionSpec& option : option_table()) {
        EXPECT_NE(answer.text.find("--" + std::string(option.name)), std::string::npos) << option.name;
    }
}

TEST(CommandLine, ToolsTakeTheOptionsOfTheStoreAndNoOthers) {
    const CommandLine line = parse_command_line(
        {"ckptfs", "inspect", "s3://bucket/run/model.pt", "--json", "--region", "eu-west-1", "--retry-for", "3s"});
    const auto* request = std::get_if<ToolRequest>(&line);
    ASSERT_NE(request, nullptr);
    EXPECT_EQ(request->tool, Tool::kInspect);
    EXPECT_TRUE(request->json);
    EXPECT_EQ(request->object.key, "run/model.pt");
    const auto config = make_config(*request, kNothing);
    ASSERT_TRUE(config);
    EXPECT_EQ(config->store.bucket, "bucket");
    EXPECT_EQ(config->store.region, "eu-west-1");
    EXPECT_EQ(config->store.retry_for, std::chrono::seconds(3));
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"ckptfs", "cat", "s3://bucket/model.pt", "--compress", "none"},
          {"ckptfs", "cat", "s3://bucket"},
          {"ckptfs", "inspect"}}) {
        const CommandLine refused = parse_command_line(words);
        ASSERT_TRUE(std::holds_alternative<Answer>(refused)) << words.back();
        EXPECT_EQ(std::get<Answer>(refused).exit_code, 2) << words.back();
    }
    for (const char* tool : {"inspect", "cat", "verify"}) {
        const std::string help = std::get<Answer>(parse_command_line({"ckptfs", tool, "--help"})).text;
        EXPECT_NE(help.find("--ca-bundle"), std::string::npos) << tool;
        EXPECT_EQ(help.find("--allow-other"), std::string::npos) << tool;
    }
}

// As -o and the environment take it.
TEST(CommandLine, ASwitchMayBeTurnedOff) {
    for (const std::string& value : {std::string("no"), std::string("false"), std::string("0")}) {
        const CommandLine line =
            parse_command_line({"ckptfs", "mount", "s3://b", "/mnt", "--read-only", "--read-only=" + value});
        const auto config = make_config(std::get<MountRequest>(line), kNothing);
        ASSERT_TRUE(config) << config.error().message;
        EXPECT_FALSE(config->names.read_only) << value;
    }
    const CommandLine on = parse_command_line({"ckptfs", "mount", "s3://b", "/mnt", "--read-only"});
    EXPECT_TRUE(make_config(std::get<MountRequest>(on), kNothing)->names.read_only);
    const CommandLine wrong = parse_command_line({"ckptfs", "mount", "s3://b", "/mnt", "--read-only=maybe"});
    const auto config = make_config(std::get<MountRequest>(wrong), kNothing);
    ASSERT_FALSE(config);
    EXPECT_NE(config.error().message.find("yes or no"), std::string::npos);
}

TEST(CommandLine, AListOfNamesTakesNoDirectory) {
    for (const char* const list : {"stage", "keep-on-kill", "commit-marker", "compress-exclude"}) {
        const auto config = configure({format("--{}", list), "*.log,logs/*.txt"});
        ASSERT_FALSE(config) << list;
        EXPECT_NE(config.error().message.find(format("--{}: logs/*.txt", list)), std::string::npos);
    }
}

TEST(CommandLine, ATimeInWhichNothingIsAnsweredIsRefused) {
    for (const char* const option : {"--retry-for", "--stall-timeout"}) {
        EXPECT_FALSE(configure({option, "0s"})) << option;
        EXPECT_TRUE(configure({option, "1s"})) << option;
    }
}

TEST(CommandLine, AnEmptyValueTakesNoOtherOption) {
    const CommandLine line =
        parse_command_line({"ckptfs", "mount", "s3://b", "/mnt", "--commit-marker=", "--read-only"});
    const auto config = make_config(std::get<MountRequest>(line), kNothing);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_TRUE(config->names.read_only);
    EXPECT_TRUE(config->write.commit_markers.empty());
}

TEST(CommandLine, VerifyTakesAWholeBucket) {
    const CommandLine line = parse_command_line({"ckptfs", "verify", "s3://bucket"});
    ASSERT_TRUE(std::holds_alternative<ToolRequest>(line));
    EXPECT_EQ(std::get<ToolRequest>(line).object.key, "");
}

TEST(CommandLine, WaitTakesPathsAndATime) {
    const CommandLine line = parse_command_line({"ckptfs", "wait", "/mnt/a", "/mnt/b/file", "--timeout", "2m"});
    const auto* const request = std::get_if<WaitRequest>(&line);
    ASSERT_NE(request, nullptr);
    EXPECT_EQ(request->paths, (std::vector<std::string>{"/mnt/a", "/mnt/b/file"}));
    EXPECT_EQ(request->timeout, std::chrono::minutes(2));
    const CommandLine at_once = parse_command_line({"ckptfs", "wait", "/mnt/a", "--timeout", "0"});
    EXPECT_EQ(std::get<WaitRequest>(at_once).timeout, Milliseconds(0));
    EXPECT_FALSE(std::get<WaitRequest>(parse_command_line({"ckptfs", "wait", "/mnt/a"})).timeout);
    for (const auto& wrong :
         {std::vector<std::string>{"ckptfs", "wait"}, {"ckptfs", "wait", "/mnt/a", "--timeout", "soon"}}) {
        EXPECT_EQ(std::get<Answer>(parse_command_line(wrong)).exit_code, 2);
    }
}

TEST(CommandLine, VersionAndUnmount) {
    const CommandLine version = parse_command_line({"ckptfs", "--version"});
    EXPECT_EQ(std::get<Answer>(version).exit_code, 0);
    EXPECT_TRUE(std::get<Answer>(version).text.starts_with("ckptfs "));
    const auto warm = std::get<CacheRequest>(parse_command_line({"ckptfs", "warm", "/mnt/a", "/mnt/b", "--json"}));
    EXPECT_EQ(warm.paths, (std::vector<std::string>{"/mnt/a", "/mnt/b"}));
    EXPECT_TRUE(warm.json && !warm.drops);
    EXPECT_TRUE(std::get<CacheRequest>(parse_command_line({"ckptfs", "drop", "/mnt/a"})).drops);
    EXPECT_EQ(std::get<Answer>(parse_command_line({"ckptfs", "warm"})).exit_code, 2);
    const CommandLine unmount = parse_command_line({"ckptfs", "unmount", "/mnt"});
    EXPECT_EQ(std::get<UnmountRequest>(unmount).directory, "/mnt");
}

TEST(CommandLine, SaysInOneLineWhatIsWrong) {
    EXPECT_EQ(message({"--max-memory", "lots"}), "--max-memory: \"lots\" is not a size such as 64M or 1G");
    EXPECT_EQ(message({"--max-memory", "1M"}), "--max-memory: \"1M\" is less than 64M");
    EXPECT_EQ(message({"--part-size", "1M"}), "--part-size: S3 allows parts from 5M to 5G");
    EXPECT_EQ(message({"--direct-io", "maybe"}), "--direct-io: \"maybe\" is not one of auto, always, never");
    EXPECT_EQ(message({"--ack", "later"}), "--ack: \"later\" is not one of store, disk");
    EXPECT_EQ(message({"--ack", "disk"}),
              "--ack disk: set --cache-dir, a directory on the disk that is to acknowledge");
    EXPECT_TRUE(configure({"--ack", "disk", "--cache-dir", "/nvme"})->disk.acknowledges);
    EXPECT_NE(message({"-o", "part_sise=8M"}).find("there is no such option"), std::string::npos);
    EXPECT_NE(message({"-o", "part-size"}).find("a value is missing"), std::string::npos);
    EXPECT_NE(message({"--nonsense"}).find("nonsense"), std::string::npos);
    const CommandLine nothing = parse_command_line({"ckptfs"});
    EXPECT_NE(std::get<Answer>(nothing).exit_code, 0);
    EXPECT_EQ(std::get<Answer>(nothing).text.find('\n'), std::get<Answer>(nothing).text.size() - 1);
}

std::string said_to(std::vector<std::string> words) {
    words.insert(words.begin(), "ckptfs");
    const CommandLine line = parse_command_line(words);
    const auto* answer = std::get_if<Answer>(&line);
    return answer == nullptr ? "" : answer->text;
}

TEST(CommandLine, OffersNearMatchesOfFlagsAndCommands) {
    EXPECT_EQ(said_to({"mount", "s3://b", "/mnt", "--compres", "zstd"}),
              "ckptfs: there is no option --compres; did you mean --compress? See ckptfs mount --help\n");
    EXPECT_EQ(said_to({"cat", "s3://b/k", "--endpoint_url=http://h"}),
              "ckptfs: there is no option --endpoint_url; did you mean --endpoint-url? See ckptfs cat --help\n");
    EXPECT_EQ(said_to({"gc", "s3://b", "--colour"}), "ckptfs: there is no option --colour. See ckptfs gc --help\n");
    EXPECT_EQ(said_to({"mout", "s3://b", "/mnt"}),
              "ckptfs: there is no command mout; did you mean mount? See ckptfs --help\n");
    EXPECT_EQ(said_to({"sing"}), "ckptfs: there is no command sing. See ckptfs --help\n");
    EXPECT_EQ(said_to({"mount", "s3://b", "/mnt", "--\x1b[2J"}),
              "ckptfs: there is no option --\\x1b[2J. See ckptfs mount --help\n");
}

}  // namespace
}  // namespace ckptfs
