// SPDX-License-Identifier: Apache-2.0
// What is changed of a file whose size, or the end of whose object, came damaged.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <string>

#include "support/hooked_store.h"
#include "unit/staged/staged_file_fixture.h"

namespace ckptfs::testing {
namespace {

// A few bytes of each part, so that what is published is made of the whole base.
constexpr std::uint64_t kWhole = 20 * kMiB + 71;
constexpr std::uint64_t kApart = 4 * kMiB;

class BaseSizes : public ::testing::Test, protected WriterFixture {
protected:
    BaseSizes() : WriterFixture(256 * kMiB, {}, "auto") {
        const auto writer = open();
        EXPECT_TRUE(write(*writer, 0, text));
        base = commit(*writer).value();
    }
    ~BaseSizes() override {
        staging.stop();
        executor.stop();
    }
    BaseSizes(const BaseSizes&) = delete;
    BaseSizes& operator=(const BaseSizes&) = delete;

    Result<CommittedObject> change_all() {
        const auto staged =
            make_staged_file({environment, read_environment, {"", "00000000-0000-4000-8000-000000000000"}}, kKey, base,
                             Streaming::kNever);
        for (std::uint64_t offset = 0; offset < kWhole; offset += kApart) {
            EXPECT_TRUE(write(*staged, offset, "changed"));
            changed.replace(offset, 7, "changed");
        }
        const Result<CommittedObject> committed = commit(*staged);
        if (!committed) {
            EXPECT_TRUE(abort(*staged));
        }
        return committed;
    }

    const std::string text = bytes(kWhole);
    std::string changed = text;
    CommittedObject base;
    HookedStore hooked{store, [](int) { return Fate::kPasses; }};
    BlockCache cache{*pool, clock};
    ReadEnvironment read_environment{hooked, *pool, executor, clock, *codec, cache, ReadConfig{}};
};

TEST_F(BaseSizes, ThatAreWrongCutNothingOff) {
    base.size -= kMiB;
    const Result<CommittedObject> committed = change_all();
    EXPECT_FALSE(committed);
    EXPECT_TRUE(file(kKey) == text);
}

TEST_F(BaseSizes, AreReadOnceMoreWhereTheEndCameDamaged) {
    std::atomic<int> gets = 0;
    hooked.look_at_gets([&](GetRequest& request) {
        if (gets++ == 0) {
            // The size of the last frame.
            flip_a_bit(request, request.range->length - 17);
        }
    });
    const Result<CommittedObject> committed = change_all();
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_TRUE(file(kKey) == changed);
}

}  // namespace
}  // namespace ckptfs::testing
