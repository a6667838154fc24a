// SPDX-License-Identifier: Apache-2.0
// How those that waited for memory go on.
#include <gtest/gtest.h>

#include <cstddef>
#include <utility>

#include "base/memory_pool.h"
#include "support/held_executor.h"

namespace ckptfs::testing {
namespace {

TEST(MemoryWaiters, ReadersAndRequestsComeBeforeWhatIsEncoded) {
    HeldExecutor executor;
    MemoryShares shares;
    shares.total = 1;
    shares.of.fill(MemoryShare{0, 1});
    const auto pool = std::move(MemoryPool::create(shares, &executor, nullptr).value());
    std::size_t urgent = 0;
    for (const MemoryUse use : {MemoryUse::kWrite, MemoryUse::kRead, MemoryUse::kEncode, MemoryUse::kReceive}) {
        auto taken = pool->try_take(MemoryUse::kWrite);
        ASSERT_TRUE(taken);
        pool->take(use, [](const Buffer&) {});
        taken.reset();
        urgent += use == MemoryUse::kRead || use == MemoryUse::kReceive ? 1 : 0;
        EXPECT_EQ(executor.urgent(), urgent);
    }
    EXPECT_EQ(executor.ordinary(), 2U);
}

}  // namespace
}  // namespace ckptfs::testing
