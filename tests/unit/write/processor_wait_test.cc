// SPDX-License-Identifier: Apache-2.0
#include "write/processor_wait.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ckptfs {
namespace {

TEST(ProcessorTimes, GrowWithWork) {
    const auto before = processor_times();
    ASSERT_TRUE(before) << "/proc/thread-self/schedstat is not there";
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    while (std::chrono::steady_clock::now() < end) {
    }
    const auto after = processor_times();
    ASSERT_TRUE(after);
    EXPECT_GE((after->ran + after->waited) - (before->ran + before->waited), std::chrono::milliseconds(10));
    EXPECT_GE(after->waited, before->waited);
}

}  // namespace
}  // namespace ckptfs
