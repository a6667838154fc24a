// SPDX-License-Identifier: Apache-2.0
#include "daemon/local_checks.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "support/temporary_directory.h"

namespace ckptfs {
namespace {

namespace stdfs = std::filesystem;

class LocalChecks : public ::testing::Test {
protected:
    [[nodiscard]] MountEntry fuse_mount(const std::string& at, std::string type) const {
        MountEntry entry;
        entry.mount_point = at;
        entry.type = std::move(type);
        entry.source = "s3://bucket/run";
        return entry;
    }

    static std::string line(const Status& status) { return status ? "" : status.error().message; }
    static std::string line(const Result<std::string>& status) { return status ? "" : status.error().message; }

    const testing::TemporaryDirectory temporary_;
    const stdfs::path directory_ = temporary_.path();
};

TEST_F(LocalChecks, AnEmptyDirectoryIsResolved) {
    stdfs::create_directory(directory_ / "real");
    stdfs::create_directory_symlink(directory_ / "real", directory_ / "link");
    EXPECT_EQ(check_mount_point(directory_ / "link", {}).value(), directory_ / "real");
    EXPECT_EQ(check_mount_point((directory_ / "real").string() + "/", {}).value(), directory_ / "real");
}

TEST_F(LocalChecks, AMissingMountPoint) {
    EXPECT_NE(line(check_mount_point(directory_ / "none", {})).find("does not exist; make it with mkdir -p"),
              std::string::npos);
}

TEST_F(LocalChecks, AMountPointThatIsAFile) {
    std::ofstream(directory_ / "file") << "x";
    EXPECT_NE(line(check_mount_point(directory_ / "file", {})).find("is not a directory"), std::string::npos);
}

TEST_F(LocalChecks, AMountPointThatIsNotEmpty) {
    std::ofstream(directory_ / "file") << "x";
    EXPECT_NE(line(check_mount_point(directory_, {})).find("is not empty"), std::string::npos);
}

TEST_F(LocalChecks, AMountPointThatIsAlreadyMounted) {
    const std::string message =
        line(check_mount_point(directory_, {fuse_mount(directory_.string(), std::string(kFileSystemType))}));
    EXPECT_NE(message.find("s3://bucket/run is already mounted"), std::string::npos);
    EXPECT_NE(message.find("ckptfs unmount"), std::string::npos);
}

TEST_F(LocalChecks, NoFuseDevice) {
    const std::string message = line(check_fuse(directory_ / "fuse", true, ""));
    EXPECT_NE(message.find("modprobe fuse"), std::string::npos);
    EXPECT_NE(message.find("--device /dev/fuse"), std::string::npos);
}

TEST_F(LocalChecks, NoFusermountForAUser) {
    std::ofstream(directory_ / "fuse") << "";
    EXPECT_TRUE(check_fuse(directory_ / "fuse", true, ""));
    EXPECT_NE(line(check_fuse(directory_ / "fuse", false, directory_)).find("install the package fuse3"),
              std::string::npos);
    std::ofstream(directory_ / "fusermount3") << "";
    stdfs::permissions(directory_ / "fusermount3", stdfs::perms::owner_all);
    EXPECT_TRUE(check_fuse(directory_ / "fuse", false, "/nowhere:" + directory_.string()));
}

TEST_F(LocalChecks, AStagingDirectoryOnAFuseMount) {
    stdfs::create_directory(directory_ / "stage");
    EXPECT_TRUE(check_staging_directory(directory_ / "stage", {}));
    EXPECT_NE(line(check_staging_directory(directory_ / "stage", {fuse_mount(directory_.string(), "fuse.sshfs")}))
                  .find("lies on a FUSE mount"),
              std::string::npos);
    EXPECT_NE(line(check_staging_directory(directory_ / "none", {})).find("is not a directory"), std::string::npos);
}

}  // namespace
}  // namespace ckptfs
