// SPDX-License-Identifier: Apache-2.0
#include "writeback/disk_id.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/text_file.h"
#include "base/uuid.h"
#include "support/temporary_directory.h"

namespace ckptfs {
namespace {

const DiskHost kHost{"node-1", "boot-1"};

class DiskId : public ::testing::Test {
protected:
    std::string id(const DiskHost& host, bool is_left = false) {
        return disk_id(directory_.path().string(), host, is_left).value_or("");
    }
    // As by a program that copies files: the bytes are the same, the inode is not.
    void copy_the_file() {
        std::filesystem::copy_file(path(), directory_.path() / "copy");
        std::filesystem::rename(directory_.path() / "copy", path());
    }

    void move_to_another_device() {
        std::string text = *read_text_file(AT_FDCWD, path().c_str());
        text.replace(text.rfind('\n') + 1, std::string::npos, "0:0");
        std::ofstream(path()) << text;
    }
    [[nodiscard]] std::filesystem::path path() const { return directory_.path() / "id"; }

    testing::TemporaryDirectory directory_;
};

TEST_F(DiskId, IsThatOfTheSameDiskAfterEachStart) {
    const std::string first = id(kHost);
    EXPECT_TRUE(is_uuid(first));
    EXPECT_EQ(id(kHost), first);
    EXPECT_EQ(id({"node-1", "boot-2"}), first) << "the host was started again";
    EXPECT_EQ(id({"pod-2", "boot-2"}), first) << "its container was started again";
    EXPECT_EQ(id({"pod-2", "boot-3"}), first) << "what it is known by now is written";
}

TEST_F(DiskId, IsAnotherForACopy) {
    const std::string first = id(kHost);
    const std::string of_disk = id({"node-2", "boot-2"});
    EXPECT_NE(of_disk, first);
    EXPECT_EQ(id({"node-2", "boot-2"}), of_disk);
    copy_the_file();
    const std::string of_files = id({"node-2", "boot-2"});
    EXPECT_NE(of_files, of_disk);
    EXPECT_EQ(id({"node-2", "boot-2"}), of_files);
}

// Clones of a volume may be attached side by side.
TEST_F(DiskId, IsAnotherForACloneThatIsAttachedBeside) {
    const std::string first = id(kHost);
    move_to_another_device();
    EXPECT_EQ(id({"node-1", "boot-2"}), first) << "after a start the device may have another number";
    move_to_another_device();
    const std::string of_clone = id({"pod-2", "boot-2"});
    EXPECT_NE(of_clone, first);
    EXPECT_EQ(id({"pod-2", "boot-2"}), of_clone);
}

TEST_F(DiskId, StaysWhileSomethingIsLeft) {
    const std::string first = id(kHost);
    copy_the_file();
    EXPECT_EQ(id({"node-2", "boot-2"}, true), first);
    EXPECT_EQ(id({"node-2", "boot-2"}, true), first);
    EXPECT_NE(id({"node-2", "boot-2"}), first);
}

TEST_F(DiskId, OfAnEarlierVersionIsKept) {
    for (const char* const rest : {"", "\nnode-1"}) {
        const std::string earlier = random_uuid();
        std::ofstream(path()) << earlier << rest;
        EXPECT_EQ(id(kHost), earlier);
        EXPECT_EQ(id(kHost), earlier);
    }
}

}  // namespace
}  // namespace ckptfs
