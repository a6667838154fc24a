// SPDX-License-Identifier: Apache-2.0
#include "cli/mount_place.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "cli/command_line.h"
#include "cli/request_config.h"
#include "support/temporary_directory.h"

namespace ckptfs {
namespace {

namespace stdfs = std::filesystem;

class MountPlaceTest : public ::testing::Test {
protected:
    MountPlaceTest() {
        stdfs::create_directory(directory_ / "mnt");
        stdfs::create_directory(directory_ / "with space");
        stdfs::create_directory_symlink(directory_, directory_ / "link");
    }

    void write(const std::string& text) { std::ofstream(fstab()) << text; }
    [[nodiscard]] std::string fstab() const { return directory_ / "fstab"; }
    [[nodiscard]] std::string place(const std::string& name) const { return directory_ / name; }
    [[nodiscard]] Environment environment() const {
        return [fstab = fstab()](const char* name) {
            return std::string(name) == "LIBMOUNT_FSTAB" ? std::optional(fstab) : std::nullopt;
        };
    }
    [[nodiscard]] std::string problem(const std::string& name) const {
        const auto found = find_place(place(name), environment());
        return found ? "" : found.error().message;
    }

    const testing::TemporaryDirectory temporary_;
    const stdfs::path directory_ = temporary_.path();
};

TEST_F(MountPlaceTest, ComesFromTheLineOfFstab) {
    write("# a comment\n/dev/sda1 / ext4 defaults 0 1\ns3://other " + place("other") + " ckptfs defaults 0 0\n" +
          "s3://bucket/run7 " + place("mnt/") + " ckptfs _netdev,nofail,ro,region=eu-west-1,uid=train," +
          "credentials_file=/etc/ckptfs/credentials,access_log=/var/log/requests 0 0\n" + "s3://b " +
          directory_.string() + "/with\\040space fuse.ckptfs defaults\n");
    for (const char* name : {"mnt", "mnt/", "link/mnt", "./mnt"}) {
        const auto found = find_place(place(name), environment());
        ASSERT_TRUE(found) << found.error().message;
        EXPECT_EQ(found->source, "s3://bucket/run7");
        EXPECT_EQ(found->origin, "as " + fstab() + " has it for " + place("mnt"));
    }
    EXPECT_EQ(find_place(place("with space"), environment())->source, "s3://b");
    EXPECT_EQ(find_place(place("other"), environment())->source, "s3://other") << "it need not exist";
}

TEST_F(MountPlaceTest, IsWhatDoctorTakes) {
    write("s3://bucket/run7 " + place("mnt") +
          " ckptfs ro,region=eu-west-1,uid=0,credentials_file=/c,access_log=/log,max_memory=1G 0 0\n");
    const CommandLine line = parse_command_line({"ckptfs", "doctor", place("mnt"), "--region", "us-west-2"});
    const auto placed = with_place(std::get<ToolRequest>(line), environment());
    ASSERT_TRUE(placed) << placed.error().message;
    const auto config = make_config(*placed, environment());
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->store.bucket, "bucket");
    EXPECT_EQ(config->store.prefix, "run7/");
    EXPECT_EQ(config->store.credentials_file, "/c");
    EXPECT_EQ(config->store.region, "us-west-2") << "what is typed wins";
    EXPECT_TRUE(config->names.read_only);
    EXPECT_EQ(config->store.access_log, "") << "the mount writes it";
}

TEST_F(MountPlaceTest, PathsOfADirectoryThatIsNotKnownAreNotTaken) {
    const auto placed = [&](const std::string& options, std::vector<std::string> words) {
        write("s3://bucket/run7 " + place("mnt") + " ckptfs " + options + " 0 0\n");
        words.insert(words.begin() + 1, place("mnt"));
        words.insert(words.begin(), "ckptfs");
        return with_place(std::get<ToolRequest>(parse_command_line(words)), environment());
    };
    const std::string origin = "as " + fstab() + " has it for " + place("mnt");
    for (const char* option : {"credentials-file", "ca-bundle", "staging-dir", "state-dir"}) {
        const auto refused = placed(option + std::string("=a/file"), {"doctor"});
        ASSERT_FALSE(refused) << option;
        EXPECT_EQ(refused.error().message, origin + ": --" + option +
                                               " a/file is relative to a directory that is not known; give --" +
                                               option + " here");
        const auto typed = placed(option + std::string("=a/file"), {"doctor", std::string("--") + option, "b/file"});
        ASSERT_TRUE(typed) << typed.error().message;
        EXPECT_EQ(typed->settings.back(), Setting(option, "b/file"));
        EXPECT_TRUE(placed(option + std::string("=a/file,") + option + "=/b", {"doctor"})) << "the last one counts";
        EXPECT_TRUE(placed(option + std::string("="), {"doctor"})) << "as if it was not given";
    }
    EXPECT_FALSE(placed("credentials_file=a/file", {"gc"}));
    // It neither takes them nor can be told others.
    EXPECT_TRUE(placed("staging_dir=a,state_dir=b,log_file=c,metrics_file=d,access_log=e", {"gc"}));
}

TEST_F(MountPlaceTest, ThatIsNotKnownSaysWhereItWasLookedFor) {
    EXPECT_NE(problem("mnt").find("/mnt is neither a mount of ckptfs nor in " + fstab()), std::string::npos);
    write("server:/x " + place("mnt") + " nfs defaults 0 0\n");
    EXPECT_NE(problem("mnt").find("is neither"), std::string::npos);
    write("s3://bucket " + place("mnt") + " ckptfs regoin=x 0 0\n");
    EXPECT_NE(problem("mnt").find("the line of " + place("mnt") + ": -o regoin: there is no such option"),
              std::string::npos)
        << problem("mnt");
    EXPECT_EQ(read_fstab(place("none")).error().errno_value, ENOENT);
}

TEST_F(MountPlaceTest, OfAProcessIsWhatItWasStartedWith) {
    const auto settings = [](std::string_view command) { return settings_of_command(command, "s3://b/p"); };
    using namespace std::string_view_literals;
    const std::vector<Setting> expected = {{"region", "x"}, {"endpoint-url", "http://h"}};
    EXPECT_EQ(*settings("ckptfs\0mount\0s3://b/p\0/mnt\0-o\0region=x\0--endpoint-url\0http://h\0"sv), expected);
    EXPECT_EQ(settings("/sbin/mount.ckptfs\0s3://b/p\0/mnt\0-o\0rw,region=x,endpoint_url=http://h\0"sv)->back(),
              expected.back());
    EXPECT_FALSE(settings("ckptfs\0mount\0s3://other\0/mnt\0"sv));
    EXPECT_FALSE(settings("sleep\0"sv));
    EXPECT_FALSE(settings(""sv));
}

TEST_F(MountPlaceTest, IsNoBucketWhoseSchemeWasForgotten) {
    const CommandLine line = parse_command_line({"ckptfs", "doctor", "bucket"});
    EXPECT_EQ(std::get<Answer>(line).exit_code, 2);
    EXPECT_TRUE(std::holds_alternative<Answer>(parse_command_line({"ckptfs", "verify", "bucket"})));
}

TEST_F(MountPlaceTest, OfAFileInNoMountSaysSo) {
    for (const char* tool : {"inspect", "cat", "verify"}) {
        const CommandLine line = parse_command_line({"ckptfs", tool, place("model.pt")});
        const auto placed = with_place(std::get<ToolRequest>(line), environment());
        ASSERT_FALSE(placed) << tool;
        EXPECT_EQ(placed.error().message, place("model.pt") + " is in no mount of ckptfs; give s3://BUCKET/KEY");
    }
    // A bucket alone would make no sense.
    EXPECT_EQ(std::get<ToolRequest>(parse_command_line({"ckptfs", "cat", "model.pt"})).path, "model.pt");
}

}  // namespace
}  // namespace ckptfs
