// SPDX-License-Identifier: Apache-2.0
#include "base/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/memory_shares.h"

namespace ckptfs {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

TEST(ParseTotalRam, ReadsKibibytes) {
    EXPECT_EQ(parse_total_ram("MemTotal:       24648692 kB\nMemFree:        12345 kB\n"), 24'648'692ULL * 1024);
    EXPECT_EQ(parse_total_ram("MemFree: 1 kB\nMemTotal:\t 8 kB"), std::nullopt);
    EXPECT_EQ(parse_total_ram(""), std::nullopt);
    EXPECT_EQ(parse_total_ram("MemTotal: lots\n"), std::nullopt);
    EXPECT_EQ(parse_total_ram("MemTotal: 18446744073709551615 kB\n"), std::nullopt);
}

TEST(MemoryLimitFiles, FollowsVersion2Upwards) {
    EXPECT_THAT(memory_limit_files("0::/system.slice/job.service\n"),
                ElementsAre("/sys/fs/cgroup/system.slice/job.service/memory.max",
                            "/sys/fs/cgroup/system.slice/memory.max", "/sys/fs/cgroup/memory.max"));
    EXPECT_THAT(memory_limit_files("0::/\n"), ElementsAre("/sys/fs/cgroup/memory.max"));
}

TEST(MemoryLimitFiles, FindsTheMemoryControllerOfVersion1) {
    EXPECT_THAT(memory_limit_files("12:pids:/a\n4:cpu,memory:/slurm/job_1\n1:name=systemd:/x\n"),
                ElementsAre("/sys/fs/cgroup/memory/slurm/job_1/memory.limit_in_bytes",
                            "/sys/fs/cgroup/memory/slurm/memory.limit_in_bytes",
                            "/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    EXPECT_THAT(memory_limit_files("4:memory_other:/a\n"), IsEmpty());
}

TEST(MemoryLimitFiles, IgnoresWhatItDoesNotUnderstand) {
    EXPECT_THAT(memory_limit_files(""), IsEmpty());
    EXPECT_THAT(memory_limit_files("nonsense\n::\n0::relative\n0:\n"), IsEmpty());
}

TEST(ParseMemoryLimit, ReadsANumberOrNone) {
    EXPECT_EQ(parse_memory_limit("2147483648\n"), 2 * kGiB);
    EXPECT_EQ(parse_memory_limit("max\n"), std::nullopt);
    EXPECT_EQ(parse_memory_limit(""), std::nullopt);
}

TEST(DefaultMaxMemory, IsFivePercentUpToOneGiB) {
    EXPECT_EQ(default_max_memory(8 * kGiB, std::nullopt, 2), 8 * kGiB / 20);
    EXPECT_EQ(default_max_memory(512 * kGiB, std::nullopt, 2), kGiB);
    EXPECT_EQ(default_max_memory(512 * kGiB, 4 * kGiB, 2), 4 * kGiB / 20);
    // More where there are processors to fill it.
    EXPECT_EQ(default_max_memory(512 * kGiB, std::nullopt, 32), 2 * kGiB);
    EXPECT_EQ(default_max_memory(2048 * kGiB, std::nullopt, 192), 4 * kGiB);
    EXPECT_EQ(default_max_memory(20 * kGiB, std::nullopt, 192), kGiB);
    // "No limit" of version 1.
    EXPECT_EQ(default_max_memory(8 * kGiB, 9'223'372'036'854'771'712ULL, 2), 8 * kGiB / 20);
    EXPECT_EQ(default_max_memory(std::nullopt, std::nullopt, 2), kGiB);
}

TEST(DefaultMaxMemory, IsNeverTooSmallToWork) {
    EXPECT_EQ(default_max_memory(512 * kMiB, std::nullopt, 2), kSmallestMaxMemory);
}

TEST(DefaultMaxMemory, OfThisMachineLiesWithinItsBounds) {
    EXPECT_GE(default_max_memory(1), kSmallestMaxMemory);
    EXPECT_LE(default_max_memory(1), kGiB);
}

}  // namespace
}  // namespace ckptfs
