// SPDX-License-Identifier: Apache-2.0
// The memory that bodies on the disk are sent from.
#include "writeback/body_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_pool.h"
#include "support/eventually.h"
#include "unit/writeback/writeback_fixture.h"

namespace ckptfs::testing {
namespace {

MemoryShares small_memory(std::size_t commit_cap) {
    MemoryShares shares;
    shares.total = 8;
    shares.of.fill({0, 8});
    shares.of[static_cast<std::size_t>(MemoryUse::kCommit)] = {1, commit_cap};
    return shares;
}

// As a job that reads on and on: what was read stays until it is asked for.
TEST_F(WritebackTest, WhatIsSentGetsItsMemoryFromThoseThatKeepIt) {
    const auto memory = std::move(*MemoryPool::create(small_memory(8), nullptr, nullptr));
    std::mutex mutex;
    std::vector<Buffer> kept;
    for (int number = 0; number < 5; ++number) {
        kept.push_back(std::move(*memory->try_take(MemoryUse::kRead)));
    }
    memory->add_pressure_listener([&](MemoryUse waiting) {
        const std::lock_guard lock(mutex);
        if (waiting != MemoryUse::kCommit || kept.empty()) {
            return false;
        }
        kept.pop_back();
        return true;
    });
    FakeStore store{5};
    WritebackMount made(store, *memory, directory(), std::uint64_t{1} << 40);
    const std::string content(6 << 20, 'x');
    ASSERT_TRUE(made.put("a", content));
    made.unsent().start();
    made.wait_until_sent();
    EXPECT_EQ(store.content("a"), content);
}

// Of those that wait, writers are asked to put their data on the disk.
TEST_F(WritebackTest, WhatOnlyTheEndOfARequestFreesIsAskedOfNoOther) {
    const auto memory = std::move(*MemoryPool::create(small_memory(6), nullptr, nullptr));
    std::atomic<int> asked = 0;
    memory->add_pressure_listener([&](MemoryUse) {
        ++asked;
        return false;
    });
    FakeStore store{5};
    WritebackMount made(store, *memory, directory(), std::uint64_t{1} << 40);
    for (const char* name : {"a", "b", "c"}) {
        ASSERT_TRUE(made.put(name, std::string(3 << 20, 'x')));
    }
    store.hold(Operation::kPut);
    made.unsent().start();
    ASSERT_TRUE(store.wait_until_held(Operation::kPut, 2));
    store.release(Operation::kPut);
    made.wait_until_sent();
    EXPECT_EQ(asked, 0);
    EXPECT_TRUE(store.exists("c"));
}

// The mount before had more.
TEST_F(WritebackTest, WhatDoesNotFitIntoMemoryIsToldAndKeepsNoMountFromEnding) {
    const auto memory = std::move(*MemoryPool::create(small_memory(5), nullptr, nullptr));
    FakeStore store{5};
    WritebackMount made(store, *memory, directory(), std::uint64_t{1} << 40);
    ASSERT_TRUE(made.put("a", std::string(6 << 20, 'x')));
    ASSERT_TRUE(made.put("b", std::string(3 << 20, 'y')));
    made.unsent().start();
    EXPECT_TRUE(eventually([&] { return made.unsent().status().failing_key == "a"; }));
    EXPECT_THAT(made.unsent().status().failure, ::testing::HasSubstr("does not fit into --max-memory"));
    EXPECT_TRUE(eventually([&] { return store.exists("b"); }));
}

}  // namespace
}  // namespace ckptfs::testing
