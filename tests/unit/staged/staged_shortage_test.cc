// SPDX-License-Identifier: Apache-2.0
// Staged files while memory is short: who waits for memory of one kind holds none of it, so that its reserve is enough
// for any number of requests.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unit/staged/staged_file_fixture.h"

namespace ckptfs::testing {
namespace {

constexpr std::uint64_t kReaders = 24;

class StagedShortageTest : public StagedFileTest {
public:
    StagedShortageTest() : StagedFileTest(64 * kMiB) {}

protected:
    // All but the reserves of what is read and encoded.
    std::vector<Buffer> take_what_nobody_has_reserved() {
        std::vector<Buffer> others;
        for (const MemoryUse use : {MemoryUse::kWrite, MemoryUse::kCommit, MemoryUse::kReceive}) {
            while (std::optional<Buffer> buffer = pool->try_take(use)) {
                others.push_back(std::move(*buffer));
            }
        }
        return others;
    }
};
INSTANTIATE_TEST_SUITE_P(Codecs, StagedShortageTest, ::testing::Values("none", "auto"));

TEST_P(StagedShortageTest, AReadOfOldAndNewBytesWaitsForNoMemoryOfAKindThatItHolds) {
    std::string text = bytes((kReaders + 1) * kMiB);
    const auto staged = open_staged(save(text), Streaming::kNever);
    for (std::uint64_t block = 1; block <= kReaders; ++block) {
        change(*staged, text, block * kMiB, "new");
    }
    const std::vector<Buffer> others = take_what_nobody_has_reserved();
    // Fewer than there are readers.
    ASSERT_LT(pool->usage().free_buffers, kReaders);
    // Blocks are not there before all have begun.
    store.hold(Operation::kGet);
    std::atomic<std::uint64_t> answered = 0;
    std::atomic<std::uint64_t> right = 0;
    for (std::uint64_t reader = 0; reader < kReaders; ++reader) {
        const std::uint64_t offset = reader * kMiB + kMiB / 2;
        staged->read(offset, kMiB, [&, offset](const Result<Payload>& got) {
            right += got && got->to_string() == text.substr(offset, kMiB) ? 1 : 0;
            ++answered;
        });
    }
    store.release(Operation::kGet);
    EXPECT_TRUE(eventually([&] { return answered == kReaders; })) << answered << " answered";
    EXPECT_EQ(right, kReaders);
}

}  // namespace
}  // namespace ckptfs::testing
