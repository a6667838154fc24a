// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "codec/plain.h"
#include "support/temporary_directory.h"
#include "write/block_encoding.h"
#include "write/frame_sequencer.h"
#include "write/part_assembler.h"

namespace ckptfs {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::shared_ptr<const FrameEncoder> stored() {
    return make_plain_encoder();
}

Slice slice_of(std::string text) {
    return Payload::from_string(std::move(text)).slices()[0];
}

PartFrame frame_of(std::uint64_t offset, std::string text) {
    PartFrame frame;
    frame.offset = offset;
    frame.size = text.size();
    take_encoded(frame, *stored(),
                 stored()->encode(Payload::from_string(std::move(text)), {}, EncodeEffort::kNormal).value(), {});
    return frame;
}

PartFrame frame_at(std::uint64_t index, char fill) {
    return frame_of(index * kFrameSize, std::string(kFrameSize, fill));
}

// As a container has them.
PartFrame zeros_at(std::uint64_t index) {
    PartFrame frame;
    frame.offset = index * kFrameSize;
    frame.size = frame.encoded_size = kFrameSize;
    frame.bytes = Payload::from_string(std::string(17, 'z'));
    frame.encoded = true;
    frame.record.stored_size = 17;
    return frame;
}

TEST(FrameSequencer, CutsWholeFramesWhereverWritesEnd) {
    FrameSequencer sequencer;
    EXPECT_TRUE(sequencer.append(slice_of(std::string(100, 'a'))).empty());
    const auto frames = sequencer.append(slice_of(std::string(2 * kFrameSize, 'b')));
    ASSERT_EQ(frames.size(), 2U);
    EXPECT_EQ(frames[0].offset, 0U);
    EXPECT_EQ(frames[0].raw.size(), kFrameSize);
    EXPECT_EQ(frames[0].raw.to_string().substr(98, 4), "aabb");
    EXPECT_EQ(frames[1].offset, kFrameSize);
    EXPECT_EQ(sequencer.open().size(), 100U);
    EXPECT_EQ(sequencer.end(), 2 * kFrameSize + 100);
    EXPECT_EQ(sequencer.under_way(), 2U);
}

TEST(FrameSequencer, DeliversInOrderWhateverComesBackFirst) {
    FrameSequencer sequencer(10);
    auto frames = sequencer.append(slice_of(std::string(3 * kFrameSize, 'x')));
    ASSERT_EQ(frames.size(), 3U);
    const auto frame_of_raw = [](const FrameSequencer::RawFrame& raw) {
        return frame_of(raw.offset, raw.raw.to_string());
    };
    sequencer.encoded(frames[2].sequence, frame_of_raw(frames[2]));
    sequencer.encoded(frames[1].sequence, frame_of_raw(frames[1]));
    EXPECT_FALSE(sequencer.next());
    sequencer.encoded(frames[0].sequence, frame_of_raw(frames[0]));
    for (std::uint64_t index = 0; index < 3; ++index) {
        const auto frame = sequencer.next();
        ASSERT_TRUE(frame);
        EXPECT_EQ(frame->offset, 10 + index * kFrameSize);
    }
    EXPECT_FALSE(sequencer.next());
    EXPECT_EQ(sequencer.under_way(), 0U);
}

TEST(FrameSequencer, CutsWhatIsLeftAndPatchesIt) {
    FrameSequencer sequencer;
    EXPECT_FALSE(sequencer.cut());
    EXPECT_TRUE(sequencer.append(slice_of("0123456789")).empty());
    EXPECT_EQ(sequencer.patch(3, Payload::from_string("abc")).to_string(), "0123456789");
    const auto last = sequencer.cut();
    ASSERT_TRUE(last);
    EXPECT_EQ(last->raw.to_string(), "012abc6789");
    EXPECT_EQ(sequencer.open_offset(), 10U);
}

TEST(Part, CombinesItsFramesChecksums) {
    Part part(1, 0, 0);
    part.add(frame_of(0, "hello "));
    part.add(frame_of(6, "world"));
    EXPECT_EQ(part.body().to_string(), "hello world");
    EXPECT_EQ(part.crc32c(), crc32c(as_bytes("hello world")));
    EXPECT_EQ(part.stored_size(), 11U);
}

TEST(Part, PatchesACopyOfTheBytesOnTheirWay) {
    Part part(1, 0, 0);
    part.add(frame_of(0, "hello "));
    part.add(frame_of(6, "world"));
    const Payload sent = part.body();
    part.patch(4, Payload::from_string("0_W0"));
    EXPECT_TRUE(part.has_stale_frames());
    ASSERT_TRUE(part.encode(*stored(), {}, 0));
    EXPECT_EQ(part.body().to_string(), "hell0_W0rld");
    EXPECT_EQ(part.crc32c(), crc32c(as_bytes("hell0_W0rld")));
    EXPECT_EQ(sent.to_string(), "hello world");
}

TEST(Part, IsCutWithinAFrame) {
    Part part(1, 0, 0);
    part.add(frame_of(0, "hello "));
    part.add(frame_of(6, "world"));
    EXPECT_EQ(part.cut(8).to_string(), "wo");
    EXPECT_EQ(part.end(), 6U);
    EXPECT_TRUE(part.cut(6).empty());
    EXPECT_TRUE(part.cut(0).empty());
    EXPECT_TRUE(part.empty());
}

TEST(Part, KnowsWhatItsFramesTakeAfterEachChange) {
    Part part(1, 0, 0);
    const auto expect_sums = [&part] {
        std::uint64_t stored_size = 0;
        std::uint64_t to_prepare = 0;
        for (const PartFrame& frame : std::as_const(part).frames()) {
            stored_size += frame.stored_size();
            to_prepare += frame.bytes_to_prepare();
        }
        EXPECT_EQ(part.stored_size(), stored_size);
        EXPECT_EQ(part.bytes_to_prepare(), to_prepare);
    };
    for (std::uint64_t index = 0; index < 4; ++index) {
        part.add(zeros_at(index));
        expect_sums();
    }
    EXPECT_EQ(part.stored_size(), 4 * 17U);
    part.patch(kFrameSize - 2, Payload::from_string("both"));
    EXPECT_EQ(part.stored_size(), 2 * kFrameSize + 2 * 17U);
    EXPECT_EQ(part.bytes_to_prepare(), 4 * 17U + 4);
    expect_sums();
    const testing::TemporaryDirectory directory;
    const auto disk = StagingFile::create(directory.path());
    for (FrameBytes& frame : part.frames_in_memory()) {
        frame.staged = disk->write(frame.bytes).value();
        EXPECT_TRUE(part.stage(frame));
        expect_sums();
    }
    EXPECT_EQ(part.bytes_to_prepare(), 4 * 17U + 4);
    static_cast<void>(part.cut(3 * kFrameSize - 5));
    EXPECT_EQ(part.stored_size(), 3 * kFrameSize - 5);
    expect_sums();
    static_cast<void>(part.cut(0));
    EXPECT_EQ(part.stored_size() + part.bytes_to_prepare(), 0U);
}

class PartAssemblerTest : public ::testing::Test {
protected:
    // Adds whole frames until `end`, returns the numbers of the parts that left.
    std::vector<int> add_until(std::uint64_t end) {
        std::vector<int> numbers;
        for (; next_ < end; ++next_) {
            for (const Part& part : assembler_.add(frame_at(next_, 'a'))) {
                numbers.push_back(part.number());
            }
        }
        return numbers;
    }

    PartPlan plan_{{}, 768 * kMiB};
    PartAssembler assembler_{plan_, 0, 0, 0, false};
    std::uint64_t next_ = 0;
};

TEST_F(PartAssemblerTest, HoldsAFullFirstPartUntilMoreComes) {
    EXPECT_TRUE(add_until(8).empty());
    EXPECT_EQ(add_until(9), std::vector<int>{1});
    // Later parts leave at once.
    EXPECT_EQ(add_until(16), std::vector<int>{2});
    EXPECT_TRUE(assembler_.open().empty());
    EXPECT_EQ(assembler_.open().number(), 3);
    EXPECT_EQ(assembler_.open().stored_offset(), 16 * kMiB);
}

TEST_F(PartAssemblerTest, SendsAFullFirstPartAtOnceWhenMoreIsKnownToCome) {
    assembler_.set_known_size(100 * kMiB);
    EXPECT_EQ(add_until(8), std::vector<int>{1});
}

TEST_F(PartAssemblerTest, SealsWhatIsLeft) {
    add_until(11);
    const std::vector<Part> parts = assembler_.seal();
    ASSERT_EQ(parts.size(), 1U);
    EXPECT_EQ(parts[0].number(), 2);
    EXPECT_EQ(parts[0].stored_size(), 3 * kMiB);
    EXPECT_TRUE(assembler_.seal().empty());
}

TEST_F(PartAssemblerTest, KeepsTheFirstAndTheLastPartPatchable) {
    add_until(34);
    EXPECT_EQ(assembler_.open().number(), 5);
    EXPECT_TRUE(assembler_.patchable(0, 8 * kMiB));
    EXPECT_FALSE(assembler_.patchable(8 * kMiB - 1, 8 * kMiB + 1));
    EXPECT_FALSE(assembler_.patchable(23 * kMiB, 24 * kMiB));
    // The last part that was sent, and what is being filled behind it, across their border.
    EXPECT_TRUE(assembler_.patchable(24 * kMiB, 34 * kMiB));
    EXPECT_EQ(assembler_.patchable_from(), 24 * kMiB);
}

TEST_F(PartAssemblerTest, SendsPatchedPartsAgain) {
    add_until(34);
    assembler_.patch(10, Payload::from_string("first"));
    assembler_.patch(32 * kMiB - 2, Payload::from_string("last"));
    const std::vector<Part> again = assembler_.take_patched();
    ASSERT_EQ(again.size(), 2U);
    EXPECT_EQ(again[0].number(), 1);
    EXPECT_EQ(again[1].number(), 4);
    EXPECT_TRUE(again[0].has_stale_frames());
    EXPECT_TRUE(assembler_.take_patched().empty());
    Part open = assembler_.take_whole();
    ASSERT_TRUE(open.encode(*stored(), {}, 0));
    EXPECT_EQ(open.body().to_string().substr(0, 3), "sta");
}

TEST_F(PartAssemblerTest, SendsAPatchedPartAgainBeforeItIsLetGo) {
    add_until(34);
    assembler_.patch(25 * kMiB, Payload::from_string("late"));
    EXPECT_EQ(add_until(40), (std::vector<int>{4, 5}));
    assembler_.patch(0, Payload::from_string("head"));
    EXPECT_EQ(assembler_.kept_bytes(), 16 * kMiB);
    const std::vector<Part> dropped = assembler_.drop_kept();
    ASSERT_EQ(dropped.size(), 1U);
    EXPECT_EQ(dropped[0].number(), 1);
    EXPECT_EQ(assembler_.kept_bytes(), 0U);
    EXPECT_FALSE(assembler_.patchable(0, 1));
    EXPECT_EQ(assembler_.patchable_from(), 40 * kMiB);
}

TEST_F(PartAssemblerTest, CutsBackIntoAPartThatIsStillKept) {
    add_until(34);
    EXPECT_FALSE(assembler_.can_cut(10 * kMiB));
    EXPECT_TRUE(assembler_.can_cut(33 * kMiB));
    EXPECT_TRUE(assembler_.can_cut(25 * kMiB + 5));
    EXPECT_EQ(assembler_.cut(25 * kMiB + 5).size(), 5U);
    EXPECT_EQ(assembler_.open().number(), 4);
    EXPECT_EQ(assembler_.end(), 25 * kMiB);
    EXPECT_TRUE(assembler_.can_cut(3));
    EXPECT_EQ(assembler_.cut(3).size(), 3U);
    EXPECT_EQ(assembler_.open().number(), 1);
    EXPECT_EQ(assembler_.end(), 0U);
}

TEST_F(PartAssemblerTest, ZerosMakeNoPartOfCountlessFrames) {
    constexpr std::uint64_t kMostFrames = 16'384;
    PartAssembler assembler(plan_, 0, 0, 0, true);
    std::vector<Part> parts;
    std::size_t most = 0;
    for (std::uint64_t index = 0; index < 100'000; ++index) {
        for (Part& part : assembler.add(zeros_at(index))) {
            parts.push_back(std::move(part));
        }
        most = std::max(most, assembler.open().frames().size());
        // Where no mutex is held.
        static_cast<void>(assembler.take_discarded());
    }
    EXPECT_LE(most, kMostFrames + 1);
    ASSERT_EQ(parts.size(), 6U);
    for (const Part& part : parts) {
        EXPECT_EQ(part.end() - part.begin(), kMostFrames * kFrameSize);
    }
    EXPECT_EQ(assembler.open().begin(), parts.back().end());
}

TEST_F(PartAssemblerTest, NumbersPartsBehindThoseThatAreCopied) {
    PartAssembler assembler(plan_, 2, 100 * kMiB, 100 * kMiB, false);
    std::vector<Part> parts;
    for (std::uint64_t index = 0; index < 8; ++index) {
        for (Part& part : assembler.add(frame_at(100 + index, 'b'))) {
            parts.push_back(std::move(part));
        }
    }
    ASSERT_EQ(parts.size(), 1U);
    EXPECT_EQ(parts[0].number(), 3);
    EXPECT_FALSE(assembler.patchable(99 * kMiB, 99 * kMiB + 1));
    EXPECT_TRUE(assembler.patchable(100 * kMiB, 101 * kMiB));
}

}  // namespace
}  // namespace ckptfs
