// SPDX-License-Identifier: Apache-2.0
#include "daemon/takeover.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/temporary_directory.h"

namespace ckptfs {
namespace {

const std::string kPlace = "/mnt/run7";
const std::string kSource = "s3://bucket/run7";
constexpr uid_t kSelf = 1000;

// A machine whose mounts are values.
class TakeoverTest : public ::testing::Test {
protected:
    void mount(const std::string& source, bool dead, uid_t owner = kSelf, std::string type = "fuse.ckptfs") {
        MountEntry entry;
        entry.mount_point = kPlace;
        entry.source = source;
        entry.type = std::move(type);
        entry.super_options = "rw,user_id=" + std::to_string(owner) + ",group_id=0";
        table_.push_back(entry);
        dead_.push_back(dead);
    }

    TakeoverSystem system() {
        return {[this]() -> Result<std::vector<MountEntry>> { return table_; },
                [this](const std::string& /*mount_point*/) { return dead_.back(); },
                [this](const std::string& /*mount_point*/) -> Status {
                    EXPECT_TRUE(dead_.back());
                    table_.pop_back();
                    dead_.pop_back();
                    return {};
                },
                [](const std::string& /*mount_point*/) -> Result<PlaceLock> { return PlaceLock(); }};
    }
    Result<bool> ours() { return is_ours_to_take_back(kPlace, kSource, kSelf, system()); }
    Result<bool> take() { return take_back(kPlace, kSource, kSelf, system()); }

    std::vector<MountEntry> table_;
    std::vector<bool> dead_;
};

TEST_F(TakeoverTest, NothingMountedIsNothingToTakeBack) {
    EXPECT_FALSE(ours().value());
}

TEST_F(TakeoverTest, ADeadMountOfTheSameSourceAndUserIsDetached) {
    mount(kSource, true);
    EXPECT_TRUE(ours().value());
    EXPECT_TRUE(take().value());
    EXPECT_TRUE(table_.empty());
}

TEST_F(TakeoverTest, AllLayersThatDiedAreDetached) {
    mount(kSource, true);
    mount(kSource, true);
    EXPECT_TRUE(take().value());
    EXPECT_TRUE(table_.empty());
}

TEST_F(TakeoverTest, AMountThatLivesIsLeftAlone) {
    mount(kSource, false);
    EXPECT_FALSE(ours().value());
    EXPECT_FALSE(take().value());
    EXPECT_EQ(table_.size(), 1U);
}

TEST_F(TakeoverTest, ADeadMountOfAnotherSourceOrUserIsNamedAndLeft) {
    mount("s3://bucket/run8", true);
    const auto other_source = ours();
    ASSERT_FALSE(other_source);
    EXPECT_EQ(other_source.error().errno_value, EBUSY);
    EXPECT_NE(other_source.error().message.find("s3://bucket/run8 at /mnt/run7 has ended"), std::string::npos);
    EXPECT_FALSE(take());
    table_.clear();
    dead_.clear();
    mount(kSource, true, kSelf + 1);
    EXPECT_FALSE(ours());
    EXPECT_FALSE(take());
    EXPECT_EQ(table_.size(), 1U);
}

TEST_F(TakeoverTest, AnotherFileSystemIsNoneOfOurBusiness) {
    mount(kSource, true, kSelf, "fuse.sshfs");
    EXPECT_FALSE(ours().value());
    EXPECT_FALSE(take().value());
    EXPECT_EQ(table_.size(), 1U);
}

TEST(PlaceLockTest, IsHeldByOneOfThoseWhoRaceForItAndLeavesNothingBehind) {
    constexpr int kRacers = 6;
    constexpr int kRounds = 15;
    const testing::TemporaryDirectory directory;
    const TakeoverSystem system = takeover_system([&] { return Result<std::string>(directory.path()); });
    std::atomic<int> holders = 0;
    std::atomic<int> refused = 0;
    std::atomic<int> in_company = 0;
    std::vector<std::thread> racers;
    for (int racer = 0; racer < kRacers; ++racer) {
        racers.emplace_back([&] {
            for (int round = 0; round < kRounds; ++round) {
                const auto lock = system.lock(kPlace);
                refused += lock ? 0 : 1;
                in_company += ++holders > 1 ? 1 : 0;
                // Long enough for the others to come and wait.
                const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
                while (std::chrono::steady_clock::now() < end) {
                    in_company += holders > 1 ? 1 : 0;
                }
                --holders;
            }
        });
    }
    for (std::thread& racer : racers) {
        racer.join();
    }
    EXPECT_EQ(refused, 0);
    EXPECT_EQ(in_company, 0);
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace ckptfs
