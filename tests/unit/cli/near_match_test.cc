// SPDX-License-Identifier: Apache-2.0
#include "cli/near_match.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "cli/command_line.h"
#include "cli/mount_options.h"

namespace ckptfs {
namespace {

TEST(NearMatch, CountsWhatHasToBeChanged) {
    EXPECT_EQ(edit_distance("", "abc"), 3U);
    EXPECT_EQ(edit_distance("region", "region"), 0U);
    EXPECT_EQ(edit_distance("regoin", "region"), 1U) << "neighbours are swapped at once";
    EXPECT_EQ(edit_distance("comres", "compress"), 2U);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(NearMatch, FindsWhatIsCloseAndNothingElse) {
    const std::vector<std::string> names = {"compress", "compress-exclude", "endpoint-url", "region", "uid", "gid"};
    EXPECT_EQ(near_match("compres", names), "compress");
    EXPECT_EQ(near_match("endpont-url", names), "endpoint-url");
    EXPECT_EQ(near_match("endpoint", names), "endpoint-url") << "the only one that begins so";
    EXPECT_EQ(near_match("uidd", names), "uid");
    EXPECT_EQ(near_match("umount", {"mount", "unmount"}), "unmount") << "as close, and with the same beginning";
    EXPECT_EQ(near_match("x", names), "");
    EXPECT_EQ(near_match("", names), "");
    EXPECT_EQ(near_match("colour", names), "");
    EXPECT_EQ(near_match(std::string(1'000'000, 'c'), names), "");
    EXPECT_EQ(did_you_mean("--", "regoin", names), "; did you mean --region?");
    EXPECT_EQ(did_you_mean("--", "colour", names), ".");
}

std::string said_to(std::vector<std::string> words) {
    words.insert(words.begin(), "ckptfs");
    const CommandLine line = parse_command_line(words);
    const auto* answer = std::get_if<Answer>(&line);
    return answer == nullptr ? "" : answer->text;
}

TEST(NearMatch, IsOfferedForFlagsAndCommands) {
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

TEST(NearMatch, IsOfferedForOptionsOfMountAsTheyAreWrittenThere) {
    const auto said = [](std::string_view options) {
        const auto parsed = parse_mount_options(options, UnknownOptions::kRefused);
        return parsed ? std::string() : parsed.error().message;
    };
    EXPECT_EQ(said("endpont_url=http://h"),
              "-o endpont_url: there is no such option; did you mean endpoint_url? See ckptfs mount --help");
    EXPECT_EQ(said("allow-othr"),
              "-o allow-othr: there is no such option; did you mean allow-other? See ckptfs mount --help");
    EXPECT_EQ(said("_netdv"), "-o _netdv: there is no such option; did you mean _netdev? See ckptfs mount --help");
    EXPECT_EQ(said("colour"), "-o colour: there is no such option. See ckptfs mount --help");
}

}  // namespace
}  // namespace ckptfs
