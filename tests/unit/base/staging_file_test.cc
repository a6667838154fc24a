// SPDX-License-Identifier: Apache-2.0
#include "base/staging_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace ckptfs {
namespace {

class StagingFileTest : public ::testing::Test {
protected:
    void SetUp() override {
        directory_ = std::filesystem::path(::testing::TempDir()) / ("ckptfs-staging-test-" + std::to_string(getpid()));
        std::filesystem::create_directory(directory_);
    }
    void TearDown() override { std::filesystem::remove_all(directory_); }

    static std::string read(const StagedRange& range, std::uint64_t offset, std::size_t size) {
        std::string text(size, '\0');
        const Status got = range.read(offset, std::as_writable_bytes(std::span(text)));
        return got ? text : got.error().message;
    }

    std::filesystem::path directory_;
};

TEST_F(StagingFileTest, GivesBackWhatWasPutIn) {
    const auto file = StagingFile::create(directory_);
    Payload scattered;
    for (int index = 0; index < 3000; ++index) {
        scattered.append(Payload::from_string(std::to_string(index) + ','));
    }
    const auto first = file->write(scattered);
    const auto second = file->write(Payload::from_string("second"));
    ASSERT_TRUE(first && second);
    EXPECT_EQ(read(**first, 0, scattered.size()), scattered.to_string());
    EXPECT_EQ(read(**second, 2, 4), "cond");
    EXPECT_EQ(file->slots_in_use(), 2U);
}

TEST_F(StagingFileTest, HasNoName) {
    const auto file = StagingFile::create(directory_);
    const auto range = file->write(Payload::from_string("x"));
    ASSERT_TRUE(range);
    EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(StagingFileTest, UsesSlotsAgainAndGivesTheDiskBackWhenNothingIsStaged) {
    const auto file = StagingFile::create(directory_);
    EXPECT_FALSE(file->trimmable());
    auto first = file->write(Payload::from_string("first")).value();
    const auto second = file->write(Payload::from_string("second")).value();
    first.reset();
    EXPECT_EQ(file->slots_in_use(), 1U);
    EXPECT_FALSE(file->trimmable());
    file->trim();
    EXPECT_EQ(read(*second, 0, 6), "second");
    auto third = file->write(Payload::from_string("third")).value();
    EXPECT_EQ(read(*third, 0, 5), "third");
    EXPECT_EQ(read(*second, 0, 6), "second");
}

TEST_F(StagingFileTest, GivesTheDiskBackOnceNothingIsStaged) {
    const auto file = StagingFile::create(directory_);
    file->write(Payload::from_string("gone at once")).value();
    EXPECT_TRUE(file->trimmable());
    file->trim();
    EXPECT_FALSE(file->trimmable());
    const auto again = file->write(Payload::from_string("again")).value();
    EXPECT_EQ(read(*again, 0, 5), "again");
}

TEST_F(StagingFileTest, SaysWhatToDoWhenTheDiskTakesNoMore) {
    const auto file = StagingFile::create(directory_ / "missing");
    const auto range = file->write(Payload::from_string("x"));
    ASSERT_FALSE(range);
    EXPECT_EQ(range.error().errno_value, EIO);
    EXPECT_NE(range.error().message.find((directory_ / "missing").string()), std::string::npos);
    EXPECT_NE(range.error().message.find("--max-memory"), std::string::npos);
    EXPECT_EQ(file->slots_in_use(), 0U);
}

TEST_F(StagingFileTest, WhatIsNotThereAnyMoreIsAnError) {
    const auto file = StagingFile::create(directory_);
    const auto range = file->write(Payload::from_string("short")).value();
    EXPECT_NE(read(*range, 0, 100).find("cannot be read back"), std::string::npos);
}

}  // namespace
}  // namespace ckptfs
