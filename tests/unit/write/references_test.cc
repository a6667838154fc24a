// SPDX-License-Identifier: Apache-2.0
// Checkpoints whose fp32 weights refer to their bf16 weights: whatever is written, patched, cut or appended, every file
// that is committed can be read, and is what was written.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "codec/bf16.h"
#include "support/effort.h"
#include "unit/codec/float_data.h"
#include "unit/write/writer_fixture.h"
#include "write/writer_group.h"

namespace ckptfs::testing {
namespace {

std::string master(std::uint64_t size, std::uint64_t seed = 1) {
    return std::string(as_text(fp32(size, seed)));
}

std::string model_of(const std::string& floats) {
    std::vector<std::uint16_t> rounded(floats.size() / 4);
    round_to_bf16(as_bytes(floats).data(), rounded.size(), rounded.data());
    return {reinterpret_cast<const char*>(rounded.data()), 2 * rounded.size()};
}

std::string noise(std::uint64_t size, std::uint64_t seed = 1) {
    return std::string(as_text(random_bytes(size, seed)));
}

class WriteReferences : public ::testing::Test, protected WriterFixture {
protected:
    WriteReferences() : WriterFixture(256 * kMiB, {}, "auto") {}

    std::shared_ptr<FileWriter> start(std::optional<CommittedObject> base = std::nullopt) {
        return FileWriter::create(still_environment, "dir/file", std::move(base));
    }
    // Frames of the object that refer to others.
    [[nodiscard]] std::size_t referring() const {
        const Payload stored = Payload::from_string(store.content("dir/file"));
        const auto layout = codec->layout(store.info("dir/file"), stored).value();
        std::size_t count = 0;
        for (std::uint64_t offset = 0; offset < layout->size(); offset += kFrameSize) {
            const Frame frame = layout->frame_at(offset);
            count +=
                layout->references(frame, stored.subrange(frame.stored_offset, frame.stored_size))->empty() ? 0 : 1;
        }
        return count;
    }
    void expect_committed(FileWriter& writer, const std::string& content) {
        const auto committed = commit(writer);
        ASSERT_TRUE(committed) << committed.error().message;
        const std::string back = file("dir/file");
        ASSERT_TRUE(back == content) << back.substr(0, 200);
    }

    StillClock still;
    // Frames are encoded one after the other: which of them find others does not hang on chance.
    ThreadPool encoder{"encoder", 1};
    WriteEnvironment still_environment{store, *pool, encoder, staging, still, *codec, {}};
};

TEST_F(WriteReferences, AMixedCheckpointIsSmaller) {
    const std::string floats = master(24 * kMiB);
    const std::string content = "header" + model_of(floats) + noise(4 * kMiB) + floats;
    const auto writer = start();
    ASSERT_TRUE(write(*writer, 0, content));
    expect_committed(*writer, content);
    EXPECT_GT(referring(), 20U);
    const double bf16 = 12 * 0.7;
    EXPECT_LT(static_cast<double>(store.content("dir/file").size()) / kMiB, bf16 + 4 + 12 + 1.5);
    EXPECT_TRUE(all_buffers_returned());
}

TEST_F(WriteReferences, WeightsThatChangeAreNotReferredTo) {
    const std::string floats = master(4 * kMiB);
    const std::string content = std::string(64, 'h') + model_of(floats) + floats;
    // Patched before the floats come, while they are being stored, and afterwards.
    for (const std::uint64_t written : {2 * kMiB + 64, 4 * kMiB, content.size()}) {
        const auto writer = start();
        ASSERT_TRUE(write(*writer, 0, content.substr(0, written)));
        std::string expected = content;
        for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{70'001}, kMiB + 5000}) {
            const std::string patch = noise(9000, at);
            ASSERT_TRUE(write(*writer, at, patch));
            expected.replace(at, patch.size(), patch);
        }
        ASSERT_TRUE(write(*writer, written, content.substr(written)));
        expect_committed(*writer, expected);
        EXPECT_GT(referring(), 0U) << written;
    }
}

TEST_F(WriteReferences, FloatsThatReferCanBeChanged) {
    const std::string floats = master(4 * kMiB);
    std::string content = model_of(floats) + floats;
    const auto writer = start();
    ASSERT_TRUE(write(*writer, 0, content));
    for (const std::uint64_t at : {3 * kMiB + 17, 5 * kMiB, 6 * kMiB - 4}) {
        ASSERT_TRUE(write(*writer, at, "patched"));
        content.replace(at, 7, "patched");
    }
    expect_committed(*writer, content);
    EXPECT_GT(referring(), 0U);
}

TEST_F(WriteReferences, FloatsThatReferCanBeChangedAfterThePartHasLeft) {
    const std::string floats = master(40 * kMiB);
    std::string content = model_of(floats) + floats;
    const auto writer = start();
    ASSERT_TRUE(write(*writer, 0, content));
    const std::uint64_t at = content.size() - 2 * kMiB + 17;
    ASSERT_TRUE(write(*writer, at, "patched"));
    content.replace(at, 7, "patched");
    expect_committed(*writer, content);
    EXPECT_GT(referring(), 30U);
}

TEST_F(WriteReferences, TheFirstPartCanBeChangedButForWhatIsReferredTo) {
    const std::string floats = master(40 * kMiB);
    std::string content = std::string(5000, 'h') + model_of(floats) + floats;
    {
        const auto writer = start();
        ASSERT_TRUE(write(*writer, 0, content));
        ASSERT_TRUE(write(*writer, 0, "patched"));
        std::string expected = content;
        expected.replace(0, 7, "patched");
        expect_committed(*writer, expected);
        EXPECT_GT(referring(), 30U);
    }
    const auto writer = start();
    ASSERT_TRUE(write(*writer, 0, content));
    const Status patched = write(*writer, 3 * kMiB + 100'000, "patched");
    ASSERT_FALSE(patched);
    EXPECT_EQ(patched.error().errno_value, EOPNOTSUPP);
    EXPECT_NE(patched.error().message.find("bf16"), std::string::npos) << patched.error().message;
    EXPECT_FALSE(commit(*writer));
}

TEST_F(WriteReferences, WhatWasCutOffIsNotReferredTo) {
    const std::string floats = master(6 * kMiB);
    const std::string model = model_of(floats);
    const auto writer = start();
    ASSERT_TRUE(write(*writer, 0, model + floats.substr(0, 2 * kMiB)));
    const std::uint64_t kept = 2 * kMiB + 100'000;
    ASSERT_TRUE(truncate(*writer, kept));
    const std::string other = noise(model.size() - kept, 9);
    ASSERT_TRUE(write(*writer, kept, other + floats));
    expect_committed(*writer, model.substr(0, kept) + other + floats);
    EXPECT_GT(referring(), 0U);
}

TEST_F(WriteReferences, AppendingGoesOnBehindAFrameThatRefers) {
    // The frame that is filled up refers to others, of small objects and of large ones.
    for (const std::uint64_t size : {std::uint64_t{2'500'000}, std::uint64_t{20'600'000}}) {
        const std::string floats = master(size / 4 * 4);
        std::string content = model_of(floats) + floats;
        const auto writer = start();
        ASSERT_TRUE(write(*writer, 0, content));
        expect_committed(*writer, content);
        const std::size_t before = referring();
        EXPECT_GT(before, 1U);
        const auto appender = start(commit(*writer).value());
        ASSERT_TRUE(append(*appender, "more"));
        content += "more";
        expect_committed(*appender, content);
        ASSERT_TRUE(write(*appender, content.size(), content));
        content += content;
        expect_committed(*appender, content);
    }
}

TEST_F(WriteReferences, WhatWentToTheDiskStillRefers) {
    const std::string floats = master(5 * kMiB);
    std::string content = model_of(floats) + floats;
    const auto writer = start();
    ASSERT_TRUE(write(*writer, 0, content));
    ASSERT_TRUE(eventually([&] {
        dynamic_cast<MemoryHolder&>(*writer).relieve(Relief::kSpillOpen);
        return pool->usage().in_use[static_cast<std::size_t>(MemoryUse::kWrite)] == 0;
    }));
    for (const std::uint64_t at : {std::uint64_t{100'000}, 4 * kMiB + 5}) {
        ASSERT_TRUE(write(*writer, at, "patched"));
        content.replace(at, 7, "patched");
    }
    expect_committed(*writer, content);
    EXPECT_GT(referring(), 0U);
    EXPECT_TRUE(all_buffers_returned());
}

// Models and masters in turn, with changes of everything in between.
TEST_F(WriteReferences, WhateverIsDoneAFileIsWhatWasWritten) {
    constexpr unsigned kSeeds = kSanitized ? 6 : 24;
    std::size_t published = 0;
    std::size_t references = 0;
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
        std::mt19937 random(seed);
        const auto below = [&random](std::uint64_t limit) { return random() % limit; };
        std::string content;
        auto writer = start();
        Status good;
        std::vector<std::string> masters;
        for (int step = 0; step < 14 && good; ++step) {
            const auto act = below(10);
            if (act < 6 || content.empty()) {
                std::string more;
                if (masters.empty() || below(3) == 0) {
                    masters.push_back(master((1 + below(6)) * 700'000, seed * 100 + masters.size()));
                    more = model_of(masters.back());
                } else {
                    more = masters[below(masters.size())];
                }
                more.insert(0, below(200), 'x');
                good = write(*writer, content.size(), more);
                content += more;
            } else if (act < 8) {
                const std::uint64_t at =
                    below(2) == 0 ? below(content.size()) : content.size() - below(content.size() / 4) - 1;
                const std::string patch = noise(1 + below(20'000), random());
                good = write(*writer, at, patch);
                if (at + patch.size() > content.size()) {
                    content.resize(at + patch.size());
                }
                content.replace(at, patch.size(), patch);
            } else if (act < 9) {
                const std::uint64_t size = content.size() - below(content.size() / 3 + 1);
                good = truncate(*writer, size);
                content.resize(size);
            } else {
                const auto committed = commit(*writer, CommitReason::kFsync);
                ASSERT_TRUE(committed) << committed.error().message;
                ASSERT_TRUE(file("dir/file") == content) << seed;
            }
        }
        if (!good) {
            EXPECT_EQ(good.error().errno_value, EOPNOTSUPP) << good.error().message;
            continue;
        }
        ++published;
        expect_committed(*writer, content);
        if (content.size() >= kMiB) {
            references += referring();
        }
    }
    EXPECT_GT(published, kSeeds / 3);
    EXPECT_GT(references, kSeeds - 4);
    EXPECT_TRUE(all_buffers_returned());
}

}  // namespace
}  // namespace ckptfs::testing
