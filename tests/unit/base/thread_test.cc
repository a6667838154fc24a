// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include <gtest/gtest.h>

#include <barrier>

namespace ckptfs {
namespace {

TEST(RunOnThreads, AllRunAtOnceAndAreWaitedFor) {
    int done = 0;
    // None passes before all are there.
    std::barrier all(8, [&]() noexcept { done = 8; });
    run_on_threads("ckptfs-test", 8, [&] { all.arrive_and_wait(); });
    EXPECT_EQ(done, 8);
}

}  // namespace
}  // namespace ckptfs
