// SPDX-License-Identifier: Apache-2.0
#include "staged/staged_bytes.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string>

#include "support/pattern.h"
#include "support/temporary_directory.h"
#include "support/unlinked_files.h"

namespace {
std::atomic<bool> space_stays = false;
}

// In place of the library's: a disk that takes no space back.
extern "C" int ftruncate(int file, off_t size) noexcept {
    if (space_stays) {
        errno = EIO;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_ftruncate, file, size));
}

namespace ckptfs::testing {
namespace {

struct StagedBytesTest : ::testing::Test {
    Result<std::string> read(std::uint64_t offset, std::size_t size) const {
        std::string text(size, '\0');
        const Status got = bytes.read(offset, std::as_writable_bytes(std::span(text)));
        return got ? Result<std::string>(std::move(text)) : failure(got.error());
    }

    void flip_a_bit_at(std::uint64_t offset) const {
        const auto files = unlinked_files(path);
        ASSERT_EQ(files.size(), 1U);
        ASSERT_TRUE(flip_a_bit(files[0], offset));
    }

    const TemporaryDirectory directory;
    const std::filesystem::path path = directory.path();
    StagedBytes bytes{path, "dir/file"};
};

TEST_F(StagedBytesTest, DamageOnTheDiskIsAnErrorThatNamesFileAndDirectory) {
    ASSERT_TRUE(bytes.write(100, as_bytes(pattern(300'000))));
    ASSERT_TRUE(read(100, 300'000));
    flip_a_bit_at(200'000);
    EXPECT_EQ(read(100, 50'000).value(), pattern(50'000));
    const auto damaged = read(199'000, 10);
    ASSERT_FALSE(damaged);
    EXPECT_EQ(damaged.error().errno_value, EIO);
    EXPECT_NE(damaged.error().message.find("dir/file"), std::string::npos);
    EXPECT_NE(damaged.error().message.find(path.string()), std::string::npos);
}

TEST_F(StagedBytesTest, DamageIsNotWrittenOver) {
    ASSERT_TRUE(bytes.write(0, as_bytes(pattern(70'000))));
    flip_a_bit_at(10);
    EXPECT_FALSE(bytes.write(20, as_bytes(pattern(5))));
    bytes.truncate(1'000);
    EXPECT_FALSE(read(0, 1'000));
}

TEST_F(StagedBytesTest, WhatWasCutAwayStaysAwayWhereTheDiskKeepsIt) {
    ASSERT_TRUE(bytes.write(0, as_bytes(pattern(300'000))));
    space_stays = true;
    bytes.truncate(100'000);
    space_stays = false;
    ASSERT_TRUE(bytes.write(250'000, as_bytes(pattern(10))));
    EXPECT_EQ(read(0, 250'010).value(), pattern(100'000) + std::string(150'000, '\0') + pattern(10));
}

RC_GTEST_FIXTURE_PROP(StagedBytesTest, HoldWhatWasWritten, ()) {
    constexpr std::size_t kSize = 300'000;
    std::string model(kSize, '\0');
    const auto steps = *rc::gen::inRange(1, 20);
    for (int step = 0; step < steps; ++step) {
        const auto begin = *rc::gen::inRange<std::size_t>(0, kSize);
        if (*rc::gen::weightedElement<bool>({{1, true}, {4, false}})) {
            space_stays = *rc::gen::arbitrary<bool>();
            bytes.truncate(begin);
            space_stays = false;
            std::fill(model.begin() + static_cast<std::ptrdiff_t>(begin), model.end(), '\0');
            continue;
        }
        const auto size = *rc::gen::inRange<std::size_t>(1, kSize - begin + 1);
        const std::string text = noise(size, static_cast<unsigned>(step));
        RC_ASSERT(bytes.write(begin, as_bytes(text)).has_value());
        model.replace(begin, size, text);
        const auto from = *rc::gen::inRange<std::size_t>(0, kSize);
        RC_ASSERT(read(from, kSize - from).value() == model.substr(from));
    }
}

}  // namespace
}  // namespace ckptfs::testing
