// SPDX-License-Identifier: Apache-2.0
// Reading objects whose frames have to be decoded.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "read/inverted_codec.h"
#include "read/part_files.h"
#include "read/reading.h"
#include "read/tail_request.h"
#include "support/held_executor.h"

namespace ckptfs::testing {
namespace {

struct EncodedReading : Reading {
    using Reading::Reading;

    std::shared_ptr<FileReader> open(const std::string& key) {
        Awaited<std::shared_ptr<FileReader>> opened;
        FileReader::open(encoded_environment, key, "", false, opened.callback());
        return opened.get().value();
    }

    InvertedCodec inverted;
    ReadEnvironment encoded_environment{store, pool, executor, clock, inverted, cache, {}};
};

TEST(FrameFetch, FramesAreDecoded) {
    EncodedReading reading;
    const std::string content = content_of(9 * kMiB + 1234);
    reading.store.put_object("k", encoded(content));
    const auto reader = reading.open("k");
    EXPECT_EQ(reader->size(), content.size());
    const auto stream = reader->open_stream();
    for (std::size_t offset = 0; offset < content.size(); offset += 300'000) {
        ASSERT_EQ(Reading::read(*reader, stream, offset, 300'000).value(), content.substr(offset, 300'000));
    }
    expect_disjoint(reading.store.ranges());
    EXPECT_TRUE(reading.comes_to_rest());
}

TEST(FrameFetch, NeighboursComeByOneRequest) {
    EncodedReading reading;
    const std::string content = content_of(9 * kMiB);
    reading.store.put_object("k", encoded(content));
    const auto reader = reading.open("k");
    reading.store.forget_ranges();
    EXPECT_EQ(Reading::read(*reader, reader->open_stream(), 0, 6 * kMiB).value(), content.substr(0, 6 * kMiB));
    EXPECT_EQ(reading.store.ranges()[0].length, 6 * kStoredFrame);
}

TEST(FrameFetch, FramesInTheTailNeedNoFurtherRequest) {
    EncodedReading reading;
    const std::string content = content_of(kTailSize / 2);
    reading.store.put_object("k", encoded(content));
    const auto reader = reading.open("k");
    EXPECT_EQ(Reading::read(*reader, reader->open_stream(), 0, content.size()).value(), content);
    EXPECT_EQ(reading.store.calls(), 1);
}

TEST(FrameFetch, ADirectoryThatBeginsInTheLastBlockButOneTellsWhereRecordsAre) {
    EncodedReading reading;
    // What is left of it for the last block is shorter than the directory.
    std::vector<std::size_t> sizes(5, 12 * kMiB);
    sizes.push_back(2 * kMiB - 6 * 31 - 100);
    const ZipFile zip(sizes);
    ASSERT_GT(zip.end_size(), zip.bytes.size() % kMiB);
    reading.store.put_object("k", encoded(zip.bytes));
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    ASSERT_TRUE(Reading::read(*reader, stream, zip.bytes.size() - kMiB, kMiB));
    for (const std::size_t record : {0U, 1U, 2U, 3U}) {
        ASSERT_TRUE(Reading::read(*reader, stream, zip.records[record] / 4096 * 4096, kMiB));
        ASSERT_TRUE(reading.comes_to_rest());
    }
    const std::uint64_t misses = reading.cache.statistics().misses;
    ASSERT_TRUE(Reading::read(*reader, stream, zip.records[4] / 4096 * 4096, kMiB));
    EXPECT_EQ(reading.cache.statistics().misses, misses);
}

TEST(FrameFetch, ADamagedFrameIsFetchedOnceMore) {
    EncodedReading reading;
    const std::string content = content_of(3 * kMiB);
    reading.store.put_object("k", encoded(content));
    const auto reader = reading.open("k");
    reading.store.answers_to_spoil = 1;
    reading.store.forget_ranges();
    EXPECT_EQ(Reading::read(*reader, reader->open_stream(), kMiB, kMiB).value(), content.substr(kMiB, kMiB));
    ASSERT_EQ(reading.store.ranges().size(), 2U);
    EXPECT_EQ(reading.store.ranges()[1].offset, kStoredFrame);
    EXPECT_EQ(reading.store.ranges()[1].length, kStoredFrame);
}

TEST(FrameFetch, AFrameThatStaysDamagedIsEIOAndSaysWhere) {
    EncodedReading reading;
    const std::string content = content_of(3 * kMiB);
    reading.store.put_object("k", encoded(content));
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    reading.store.answers_to_spoil = 2;
    const auto bytes = Reading::read(*reader, stream, kMiB, 100);
    ASSERT_FALSE(bytes.has_value());
    EXPECT_EQ(bytes.error().errno_value, EIO);
    EXPECT_EQ(bytes.error().request_id, "FAKE");
    for (const char* part : {"k: damaged", "1048576", "FAKE"}) {
        EXPECT_NE(bytes.error().message.find(part), std::string::npos) << bytes.error().message;
    }
    // Nothing damaged was kept.
    EXPECT_EQ(Reading::read(*reader, stream, kMiB, 100).value(), content.substr(kMiB, 100));
}

TEST(FrameFetch, AHostileTableHarmsOnlyItsOwnFrames) {
    EncodedReading reading;
    reading.inverted.hostile = true;
    const std::string content = content_of(3 * kMiB);
    reading.store.put_object("k", encoded(content));
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    EXPECT_EQ(Reading::read(*reader, stream, kMiB, 100).error().errno_value, EIO);
    EXPECT_EQ(Reading::read(*reader, stream, 2 * kMiB, 100).value(), content.substr(2 * kMiB, 100));
}

TEST(FrameFetch, ForManyBadFramesTheTableIsReadAgainOnce) {
    EncodedReading reading;
    const std::string content = content_of(9 * kMiB);
    std::string stored = encoded(content);
    for (std::size_t frame = 0; frame < 8; ++frame) {
        stored[frame * kStoredFrame + 100] ^= 1;
    }
    reading.store.put_object("k", stored);
    const auto reader = reading.open("k");
    reading.store.forget_ranges();
    const auto stream = reader->open_stream();
    for (int times = 0; times < 2; ++times) {
        for (std::size_t frame = 0; frame < 8; ++frame) {
            EXPECT_EQ(Reading::read(*reader, stream, frame * kMiB, 1000).error().errno_value, EIO);
        }
    }
    EXPECT_TRUE(reading.comes_to_rest());
    const auto ranges = reading.store.ranges();
    EXPECT_EQ(std::count_if(ranges.begin(), ranges.end(),
                            [&](const ByteRange& range) {
                                return range.offset + range.length == stored.size() && range.length == kSizeTail;
                            }),
              1);
    EXPECT_EQ(Reading::read(*reader, stream, 8 * kMiB, kMiB).value(), content.substr(8 * kMiB));
}

TEST(FrameFetch, AReplacedObjectIsStale) {
    EncodedReading reading;
    reading.store.put_object("k", encoded(content_of(3 * kMiB)));
    const auto reader = reading.open("k");
    reading.store.put_object("k", encoded(content_of(3 * kMiB, 2)));
    EXPECT_EQ(Reading::read(*reader, reader->open_stream(), kMiB, 100).error().errno_value, ESTALE);
}

// Neither the frames that it waits for nor its answer, nor the table that is read again for a bad frame.
TEST(FrameFetch, AReadDoesNotQueueBehindWhatIsEncoded) {
    EncodedReading reading;
    const std::string content = content_of(3 * kMiB);
    std::string stored = encoded(content);
    stored[kStoredFrame + 100] ^= 1;
    reading.store.put_object("k", stored);
    HeldExecutor executor;
    ReadEnvironment environment{reading.store,    reading.pool,  executor, reading.clock,
                                reading.inverted, reading.cache, {}};
    Awaited<std::shared_ptr<FileReader>> opened;
    FileReader::open(environment, "k", "", false, opened.callback());
    const auto reader = opened.get().value();
    const auto stream = reader->open_stream();
    EXPECT_EQ(Reading::read(*reader, stream, 0, kMiB).value(), content.substr(0, kMiB));
    EXPECT_GE(executor.urgent(), 2U);
    for (int times = 0; times < 2; ++times) {
        EXPECT_EQ(Reading::read(*reader, stream, kMiB, kMiB).error().errno_value, EIO);
    }
    EXPECT_EQ(Reading::read(*reader, stream, 2 * kMiB, kMiB).value(), content.substr(2 * kMiB));
    EXPECT_TRUE(reading.comes_to_rest());
    EXPECT_EQ(executor.ordinary(), 0U);
}

TEST(FrameFetch, TwoBuffersABlockSuffice) {
    EncodedReading reading(2);
    const std::string content = content_of(5 * kMiB);
    reading.store.put_object("k", encoded(content));
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    for (std::size_t offset = 0; offset < content.size(); offset += kMiB) {
        ASSERT_EQ(Reading::read(*reader, stream, offset, kMiB).value(), content.substr(offset, kMiB));
    }
}

TEST(FrameFetch, FromThreads) {
    EncodedReading reading(8);
    reading.store.answer_from_threads(3);
    const std::string content = content_of(12 * kMiB + 5);
    reading.store.put_object("k", encoded(content));
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream();
    for (std::size_t offset = 0; offset < content.size(); offset += 700'000) {
        ASSERT_EQ(Reading::read(*reader, stream, offset, 700'000).value(), content.substr(offset, 700'000));
    }
}

}  // namespace
}  // namespace ckptfs::testing
