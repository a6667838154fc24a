// SPDX-License-Identifier: Apache-2.0
#include "config/near_match.h"

#include <gtest/gtest.h>

#include <string>

#include "config/mount_options.h"

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
