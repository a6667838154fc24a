// SPDX-License-Identifier: Apache-2.0
#include "fuse/mount_table.h"

#include <gtest/gtest.h>

namespace ckptfs {
namespace {

constexpr std::string_view kTable =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "30 22 0:26 / /tmp rw shared:5 master:2 - tmpfs tmpfs rw,size=4k\n"
    "broken line\n"
    "41 30 0:50 /step-1 /tmp/my\\040mount rw,nosuid - fuse.ckptfs s3://bucket/a,b rw,user_id=1000,group_id=1000\n"
    "42 30 0:51 / /tmp/twice rw - tmpfs under rw\n"
    "43 42 0:52 / /tmp/twice rw - fuse.sshfs host: rw,user_id=0\n";

TEST(MountTable, ReadsFieldsAndEscapes) {
    const auto table = parse_mount_table(kTable);
    ASSERT_EQ(table.size(), 5U);
    const auto mount = mount_at(table, "/tmp/my mount");
    ASSERT_TRUE(mount);
    EXPECT_EQ(mount->mount_id, 41);
    EXPECT_EQ(mount->major, 0U);
    EXPECT_EQ(mount->minor, 50U);
    EXPECT_EQ(mount->root, "/step-1");
    EXPECT_EQ(mount->type, kFileSystemType);
    EXPECT_EQ(mount->source, "s3://bucket/a,b");
    EXPECT_EQ(mount->owner(), 1000U);
}

TEST(MountTable, OfSeveralMountsTheLastIsVisible) {
    EXPECT_EQ(mount_at(parse_mount_table(kTable), "/tmp/twice")->mount_id, 43);
    EXPECT_FALSE(mount_at(parse_mount_table(kTable), "/tmp/other"));
}

TEST(MountTable, FindsTheMountThatHoldsAPath) {
    const auto table = parse_mount_table(kTable);
    EXPECT_EQ(mount_holding(table, "/tmp/twice/deep/file")->type, "fuse.sshfs");
    EXPECT_EQ(mount_holding(table, "/tmp/twice2")->mount_point, "/tmp");
    EXPECT_EQ(mount_holding(table, "/var/tmp")->mount_point, "/");
}

TEST(MountTable, KnowsWhatTheDaemonMadeAndWhatLiesInIt) {
    const auto table = parse_mount_table(
        "30 1 0:26 / /tmp rw - tmpfs tmpfs rw\n"
        "41 30 0:50 / /tmp/made rw - fuse.ckptfs s3://bucket rw,user_id=0\n"
        "42 30 0:50 /step-1 /tmp/shown rw - fuse.ckptfs s3://bucket rw,user_id=0\n"
        "43 41 0:52 / /tmp/made/inner rw - tmpfs none rw\n"
        "44 41 0:53 / /tmp/made/a\\040b rw - tmpfs none rw\n"
        "45 43 0:54 / /tmp/made/inner/deep rw - tmpfs none rw\n");
    const auto made = mount_at(table, "/tmp/made");
    const auto shown = mount_at(table, "/tmp/shown");
    ASSERT_TRUE(made && shown);
    EXPECT_EQ(made_by_daemon(table, *shown).mount_id, 41);
    EXPECT_EQ(made_by_daemon(table, *made).mount_id, 41);
    EXPECT_EQ(mounts_inside(table, *made), "/tmp/made/inner, /tmp/made/a b");
    EXPECT_EQ(mounts_inside(table, *shown), "");
}

TEST(MountTable, ReadsTheRunningSystem) {
    const auto table = read_mount_table();
    ASSERT_TRUE(table);
    EXPECT_TRUE(mount_holding(*table, "/"));
}

}  // namespace
}  // namespace ckptfs
