// SPDX-License-Identifier: Apache-2.0
#include "fs/state/paths.h"

#include <gtest/gtest.h>

#include "base/globs.h"

namespace ckptfs::fs {
namespace {

int errno_of(const Status& status) {
    return status ? 0 : status.error().errno_value;
}

TEST(NewName, RefusesWhatS3OrLinuxCannotKeep) {
    EXPECT_EQ(errno_of(check_new_name("p/", "d/", "name")), 0);
    EXPECT_EQ(errno_of(check_new_name("p/", "d/", std::string(255, 'x'))), 0);
    EXPECT_EQ(errno_of(check_new_name("p/", "d/", std::string(256, 'x'))), ENAMETOOLONG);
    const std::string deep = std::string(900, 'd') + "/";
    EXPECT_EQ(errno_of(check_new_name("", deep, std::string(124, 'x'))), ENAMETOOLONG);
    EXPECT_EQ(errno_of(check_new_name("", deep, std::string(123, 'x'))), 0);
    EXPECT_EQ(errno_of(check_new_directory_name("", deep, std::string(123, 'x'))), ENAMETOOLONG);
    EXPECT_EQ(errno_of(check_new_directory_name("", deep, std::string(122, 'x'))), 0);
    EXPECT_EQ(errno_of(check_new_directory_name("", "", "..")), EINVAL);
    EXPECT_EQ(errno_of(check_new_name("", "", "caf\xe9")), EILSEQ);
    EXPECT_EQ(errno_of(check_name("", "", "caf\xe9")), 0);
    EXPECT_EQ(errno_of(check_new_name("", "", "..")), EINVAL);
}

TEST(NewName, ReservesTheControlDirectoryAtTheTopOnly) {
    EXPECT_EQ(errno_of(check_new_name("p/", "", ".ckptfs")), EPERM);
    EXPECT_EQ(errno_of(check_new_name("p/", "d/", ".ckptfs")), 0);
}

TEST(ListedName, TellsFilesFromDirectories) {
    EXPECT_EQ(listed_name("p/", "p/file", true)->name, "file");
    EXPECT_FALSE(listed_name("p/", "p/file", true)->is_directory);
    EXPECT_EQ(listed_name("p/", "p/dir/", true)->name, "dir");
    EXPECT_TRUE(listed_name("p/", "p/dir/", true)->is_directory);
}

TEST(ListedName, HidesKeysThatCannotBePaths) {
    EXPECT_FALSE(listed_name("p/", "p//", false));
    EXPECT_FALSE(listed_name("p/", "p/../", false));
    EXPECT_FALSE(listed_name("p/", "p/.", false));
    EXPECT_FALSE(listed_name("p/", "p/" + std::string(256, 'x'), false));
    EXPECT_FALSE(listed_name("p/", std::string("p/a\0b", 5), false));
    EXPECT_FALSE(listed_name("p/", "p/.ckptfs/", true));
    EXPECT_TRUE(listed_name("p/d/", "p/d/.ckptfs/", false));
}

TEST(InodeNumber, IsTheSameForTheSameNameAndNeverReserved) {
    EXPECT_EQ(inode_number("a/b"), inode_number("a/b"));
    EXPECT_EQ(inode_number("a/b/"), inode_number("a/b"));
    EXPECT_NE(inode_number("a/b"), inode_number("a/c"));
    EXPECT_GT(inode_number(""), 1U);
}

TEST(Globs, MatchTheName) {
    EXPECT_TRUE(matches_any("train.log", {"*.txt", "*.log"}));
    EXPECT_TRUE(matches_any("events.out.tfevents.123", {"events.out.tfevents.*"}));
    EXPECT_FALSE(matches_any("model.pt", {"*.txt", "*.log"}));
    EXPECT_FALSE(matches_any("model.pt", {}));
}

}  // namespace
}  // namespace ckptfs::fs
