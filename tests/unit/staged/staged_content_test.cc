// SPDX-License-Identifier: Apache-2.0
// Wherever a file is written and cut: the pieces say of every byte where a vector would have it from.
#include "staged/staged_content.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "ckptfs/codec.h"
#include "ckptfs/store_limits.h"

namespace ckptfs::testing {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// A letter a byte: b for base, s for staged, 0 for zeros.
class Model {
public:
    explicit Model(std::uint64_t base_size) : bytes_(base_size, 'b'), base_size_(base_size) {}

    void write(std::uint64_t begin, std::uint64_t end) {
        if (begin < end) {
            bytes_.resize(std::max<std::size_t>(bytes_.size(), end), '0');
            bytes_.replace(begin, end - begin, end - begin, 's');
        }
    }
    void truncate(std::uint64_t size) { bytes_.resize(size, '0'); }
    [[nodiscard]] const std::string& bytes() const { return bytes_; }
    [[nodiscard]] std::uint64_t unchanged_prefix() const {
        return std::min<std::uint64_t>(
            bytes_.find_first_not_of('b') == std::string::npos ? bytes_.size() : bytes_.find_first_not_of('b'),
            base_size_);
    }

private:
    std::string bytes_;
    std::uint64_t base_size_;
};

std::string letters(const std::vector<ContentPiece>& pieces) {
    std::string text;
    for (const ContentPiece& piece : pieces) {
        const char letter = piece.source == ByteSource::kBase ? 'b' : piece.source == ByteSource::kStaged ? 's' : '0';
        text.append(piece.end - piece.begin, letter);
    }
    return text;
}

RC_GTEST_PROP(StagedContentProperty, PiecesAreThoseOfAVector,
              (const std::vector<std::tuple<bool, std::uint8_t, std::uint8_t>>& steps)) {
    const auto base_size = *rc::gen::inRange<std::uint64_t>(0, 100);
    StagedContent content(base_size);
    Model model(base_size);
    for (const auto& [truncates, first, second] : steps) {
        const std::uint64_t begin = first % 128;
        const std::uint64_t end = begin + second % 32;
        if (truncates) {
            content.truncate(begin);
            model.truncate(begin);
        } else {
            content.write(begin, end);
            model.write(begin, end);
        }
        RC_ASSERT(content.size() == model.bytes().size());
        RC_ASSERT(letters(content.pieces(0, 1000)) == model.bytes());
        RC_ASSERT(letters(content.pieces(begin, end)) ==
                  (begin < model.bytes().size() ? model.bytes().substr(begin, end - begin) : ""));
        RC_ASSERT(content.unchanged_prefix() == model.unchanged_prefix());
        const auto staged = static_cast<std::uint64_t>(std::count(model.bytes().begin(), model.bytes().end(), 's'));
        RC_ASSERT(content.staged_bytes() == staged);
        RC_ASSERT(content.any_staged() == (staged > 0));
        for (std::size_t next = 1; next < content.pieces(0, 1000).size(); ++next) {
            RC_ASSERT(content.pieces(0, 1000)[next - 1].source != content.pieces(0, 1000)[next].source);
        }
        if (const auto run = content.run_behind_base()) {
            const std::string before(run->begin, 'b');
            const std::string written(run->end - run->begin, 's');
            RC_ASSERT(model.bytes().substr(0, run->end) == before + written);
            RC_ASSERT(model.bytes().find_first_not_of('0', run->end) == std::string::npos);
        }
    }
}

TEST(StagedContent, OneRunThatReachesTheEndOfTheBaseIsARunBehindIt) {
    StagedContent content(100);
    EXPECT_FALSE(content.run_behind_base());
    content.write(90, 95);
    EXPECT_FALSE(content.run_behind_base());
    content.write(95, 120);
    ASSERT_TRUE(content.run_behind_base());
    EXPECT_EQ(content.run_behind_base()->begin, 90U);
    EXPECT_EQ(content.run_behind_base()->end, 120U);
    content.write(130, 140);
    EXPECT_FALSE(content.run_behind_base());
}

TEST(StagedContent, CopiesWholeFramesThatMakeAPart) {
    StagedContent content(20 * kMiB + 5);
    EXPECT_EQ(prefix_to_copy(content), 20 * kMiB + 5);
    content.write(20 * kMiB + 5, 20 * kMiB + 6);
    EXPECT_EQ(prefix_to_copy(content), 20 * kMiB);
    content.write(7 * kMiB + 1, 7 * kMiB + 2);
    EXPECT_EQ(prefix_to_copy(content), 7 * kMiB);
    content.truncate(6 * kMiB + 2);
    EXPECT_EQ(prefix_to_copy(content), 6 * kMiB);
    content.write(5 * kMiB - 1, 5 * kMiB);
    EXPECT_EQ(prefix_to_copy(content), 0U);
}

// Changes and cuts of a file of some MiB, and frames as they may lie in its object.
RC_GTEST_PROP(StagedContentProperty, RunsThatAreCopiedMakePartsAndHoldTheBase, ()) {
    const std::uint64_t base_size = *rc::gen::inRange<std::uint64_t>(0, 80 * kMiB);
    StagedContent content(base_size);
    for (int changes = *rc::gen::inRange(0, 6); changes > 0; --changes) {
        const std::uint64_t begin = *rc::gen::inRange<std::uint64_t>(0, 80 * kMiB);
        if (*rc::gen::inRange(0, 5) == 0) {
            content.truncate(begin);
        } else {
            content.write(begin, begin + *rc::gen::inRange<std::uint64_t>(0, 4 * kMiB));
        }
    }
    std::vector<FrameRecord> frames;
    if (*rc::gen::arbitrary<bool>()) {
        frames.resize((base_size + kFrameSize - 1) / kFrameSize);
        for (FrameRecord& frame : frames) {
            frame.stored_size = *rc::gen::inRange<std::uint32_t>(kMiB / 2, kMiB);
            frame.may_refer = *rc::gen::inRange(0, 30) == 0;
        }
    }
    std::uint64_t end = prefix_to_copy(content);
    for (const FileRange& run : runs_to_copy(content, frames)) {
        RC_ASSERT(run.offset >= end + kMinPartSize);
        RC_ASSERT(run.offset % kFrameSize == 0U);
        RC_ASSERT(run.end() % kFrameSize == 0U || (run.end() == content.size() && run.end() == base_size));
        RC_ASSERT(content.pieces(run.offset, run.end()) ==
                  (std::vector{ContentPiece{run.offset, run.end(), ByteSource::kBase}}));
        std::uint64_t stored = frames.empty() ? run.size : 0;
        for (std::uint64_t frame = run.offset / kFrameSize; frame * kFrameSize < run.end() && !frames.empty();
             ++frame) {
            RC_ASSERT(!frames[frame].may_refer);
            stored += frames[frame].stored_size;
        }
        RC_ASSERT(stored >= kMinPartSize);
        end = run.end();
    }
}

TEST(StagedContent, CopiesNothingThatWouldCostMorePadding) {
    StagedContent content(20 * kMiB);
    content.write(7, 8);
    std::vector<FrameRecord> frames(20, FrameRecord{kMiB / 10, 0, false});
    for (std::size_t frame = 5; frame < 13; ++frame) {
        frames[frame].stored_size = kMiB;
    }
    // 8.7 MiB, and before it 5 MiB that take 0.5 and would be padded by 4.5.
    EXPECT_TRUE(runs_to_copy(content, frames).empty());
    frames[13].stored_size = kMiB;
    EXPECT_EQ(runs_to_copy(content, frames).size(), 1U);
    // Not the frames of this file.
    frames.pop_back();
    EXPECT_TRUE(runs_to_copy(content, frames).empty());
}

TEST(StagedContent, CopiesWhatLiesBetweenChanges) {
    StagedContent content(40 * kMiB + 5);
    content.write(7, 8);
    content.write(20 * kMiB, 21 * kMiB);
    const auto runs = runs_to_copy(content, {});
    ASSERT_EQ(runs.size(), 2U);
    EXPECT_EQ(runs[0], (FileRange{5 * kMiB, 15 * kMiB}));
    EXPECT_EQ(runs[1], (FileRange{25 * kMiB, 15 * kMiB + 5}));
    content.write(40 * kMiB + 5, 40 * kMiB + 6);
    EXPECT_EQ(runs_to_copy(content, {})[1], (FileRange{25 * kMiB, 15 * kMiB}));
}

// Part numbers are left for what is written.
TEST(StagedContent, CopiesTheLongestOfVeryManyRuns) {
    StagedContent content(40'000 * kMiB);
    for (std::uint64_t at = 0; at < 40'000; at += 20) {
        content.write(at * kMiB, at * kMiB + 1);
    }
    content.write(20'000 * kMiB, 20'007 * kMiB);
    const auto runs = runs_to_copy(content, {});
    ASSERT_EQ(runs.size(), 1000U);
    for (std::size_t next = 1; next < runs.size(); ++next) {
        EXPECT_GT(runs[next].offset, runs[next - 1].end());
        EXPECT_EQ(runs[next].size, 15 * kMiB);
    }
}

}  // namespace
}  // namespace ckptfs::testing
