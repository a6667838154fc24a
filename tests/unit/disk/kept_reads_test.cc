// SPDX-License-Identifier: Apache-2.0
// Reads of files that this node keeps on a disk.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "disk/disk_cache.h"
#include "read/reading.h"
#include "support/hand_timer.h"
#include "support/temporary_directory.h"

namespace ckptfs::testing {
namespace {

class KeptReads : public ::testing::Test {
protected:
    std::unique_ptr<DiskCache> make_cache() {
        return DiskCache::create({directory(), 1 << 30, "s"}, clock, timer).value();
    }
    [[nodiscard]] std::string directory() const { return (temporary.path() / "cache").string(); }
    // By a mount of its own; returns the ranges that it has asked for, the open's aside.
    std::vector<ByteRange> ranges_of_read(const std::string& content, std::uint64_t offset, std::size_t size) {
        const auto files = make_cache();
        Reading reading(*files);
        reading.store.put_object("k", content, {{kWriteIdMetadata, "id"}});
        reading.store.make_etags_of_content();
        reading.store.put_object("k", content, {{kWriteIdMetadata, "id"}});
        const auto reader = reading.open("k");
        const auto stream = reader->open_stream();
        for (std::uint64_t at = offset; at < offset + size; at += kMiB) {
            const std::size_t piece = std::min<std::uint64_t>(kMiB, offset + size - at);
            EXPECT_EQ(Reading::read(*reader, stream, at, piece).value(), content.substr(at, piece));
        }
        EXPECT_TRUE(reading.comes_to_rest());
        EXPECT_TRUE(files->stop());
        std::vector<ByteRange> ranges = reading.store.ranges();
        std::erase_if(ranges, [](const ByteRange& range) { return range.suffix; });
        return ranges;
    }

    TemporaryDirectory temporary;
    ManualClock clock;
    HandTimer timer;
};

TEST_F(KeptReads, ARestartFetchesNothing) {
    const std::string content = content_of(20 * kMiB + 12345);
    EXPECT_FALSE(ranges_of_read(content, 0, content.size()).empty());
    EXPECT_TRUE(ranges_of_read(content, 0, content.size()).empty());
    // Another version.
    const std::string other = content_of(20 * kMiB + 12345, 2);
    EXPECT_FALSE(ranges_of_read(other, 0, other.size()).empty());
}

TEST_F(KeptReads, InTheBackgroundLittleIsFetchedAhead) {
    const std::string content = content_of(64 * kMiB);
    const auto files = make_cache();
    Reading reading(*files);
    reading.store.put_object("k", content, {{kWriteIdMetadata, "id"}});
    const auto reader = reading.open("k");
    const auto stream = reader->open_stream(ReadPace::kBackground);
    for (std::uint64_t at = 0; at < 40 * kMiB; at += kMiB) {
        EXPECT_EQ(Reading::read(*reader, stream, at, kMiB).value(), content.substr(at, kMiB));
        std::uint64_t end = 0;
        for (const ByteRange& range : reading.store.ranges()) {
            end = range.suffix ? end : std::max(end, range.offset + range.length);
        }
        EXPECT_LE(end, at + 17 * kMiB) << at;
    }
    EXPECT_TRUE(reading.comes_to_rest());
    EXPECT_TRUE(files->stop());
}

TEST_F(KeptReads, WhatIsMissingIsFetchedAndNoMore) {
    const std::string content = content_of(24 * kMiB);
    const auto first = ranges_of_read(content, 8 * kMiB, kMiB);
    std::uint64_t fetched = 0;
    for (const ByteRange& range : first) {
        fetched += range.length;
    }
    auto rest = ranges_of_read(content, 0, content.size());
    std::uint64_t bytes = 0;
    for (const ByteRange& range : rest) {
        bytes += range.length;
    }
    EXPECT_EQ(fetched + bytes, content.size());
    EXPECT_TRUE(ranges_of_read(content, 0, content.size()).empty());
}

TEST_F(KeptReads, DamagedFramesAreFetchedAgain) {
    const std::string content = content_of(16 * kMiB);
    EXPECT_FALSE(ranges_of_read(content, 0, content.size()).empty());
    for (const auto& entry : std::filesystem::directory_iterator(directory())) {
        if (entry.path().extension() == ".data") {
            std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
            for (const std::size_t frame : {0U, 5U, 6U, 15U}) {
                file.seekp(static_cast<std::streamoff>(frame * kMiB + 77));
                file.put('?');
            }
        }
    }
    std::uint64_t bytes = 0;
    for (const ByteRange& range : ranges_of_read(content, 0, content.size())) {
        bytes += range.length;
    }
    EXPECT_GE(bytes, 4 * kMiB);
    EXPECT_LT(bytes, content.size());
    EXPECT_TRUE(ranges_of_read(content, 0, content.size()).empty());
}

}  // namespace
}  // namespace ckptfs::testing
