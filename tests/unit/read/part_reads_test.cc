// SPDX-License-Identifier: Apache-2.0
// Files of many parts, read as their loaders read them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "read/part_files.h"
#include "read/reading.h"

namespace ckptfs::testing {
namespace {

constexpr std::size_t kRecords = 14;
constexpr std::size_t kRecordSize = 12 * kMiB;

struct Loading : Reading {
    explicit Loading(const std::string& content) {
        store.put_object("k", content);
        reader = open("k");
        stream = reader->open_stream();
    }
    // As much as the kernel reads for a header. Whether it had been asked for before.
    [[nodiscard]] bool is_there(std::uint64_t part) {
        const std::uint64_t misses = cache.statistics().misses;
        EXPECT_TRUE(read(*reader, stream, part / 4096 * 4096, kMiB));
        EXPECT_TRUE(comes_to_rest());
        return cache.statistics().misses == misses;
    }
    [[nodiscard]] std::uint64_t bytes_asked_for() const {
        std::uint64_t bytes = 0;
        for (const ByteRange& range : store.ranges()) {
            bytes += range.length;
        }
        return bytes;
    }

    std::shared_ptr<FileReader> reader;
    std::shared_ptr<ReadStream> stream;
};

TEST(PartReads, HeadersOfRecordsAreThereBeforeTheyAreRead) {
    const ZipFile zip(std::vector<std::size_t>(kRecords, kRecordSize), ZipFile::Form::kZip64);
    Loading loading(zip.bytes);
    int waited = 0;
    for (const std::uint64_t record : zip.records) {
        waited += loading.is_there(record) ? 0 : 1;
    }
    EXPECT_LE(waited, 3);
    // Two blocks a header, some read-ahead before the walk is known, and the tail.
    EXPECT_LT(loading.bytes_asked_for(), (2 * kRecords + 12) * kMiB);
}

TEST(PartReads, TensorsAreThereBeforeTheyAreTouched) {
    std::string header = "{";
    for (std::size_t i = 0; i < kRecords; ++i) {
        header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"dtype":"U8","data_offsets":[)" +
                  std::to_string(i * kRecordSize) + "," + std::to_string((i + 1) * kRecordSize) + "]}";
    }
    header += "}";
    const std::string file = safetensors_file(header, kRecords * kRecordSize);
    Loading loading(file);
    int waited = 0;
    for (std::size_t i = 0; i < kRecords; ++i) {
        waited += loading.is_there(8 + header.size() + i * kRecordSize) ? 0 : 1;
    }
    EXPECT_LE(waited, 3);
}

TEST(PartReads, TheRestOfALongStepIsFetchedAheadAndNothingBehindIt) {
    constexpr std::size_t kStep = 6 * kMiB;
    const ZipFile zip(std::vector<std::size_t>(5, 2 * kRecordSize), ZipFile::Form::kZip64);
    Loading loading(zip.bytes);
    std::vector<int> waited;
    for (std::size_t record = 0; record < 4; ++record) {
        waited.push_back(0);
        for (std::size_t piece = 0; piece < kStep; piece += kMiB) {
            waited.back() += loading.is_there(zip.records[record] + piece) ? 0 : 1;
        }
    }
    // The first of it, and the second, which makes a stream of them.
    EXPECT_LE(waited[2], 2);
    EXPECT_EQ(waited[3], 0);
    const std::vector<ByteRange> ranges = loading.store.ranges();
    const std::uint64_t behind = (zip.records[2] + kStep) / kMiB * kMiB + 2 * kMiB;
    EXPECT_TRUE(std::none_of(ranges.begin(), ranges.end(), [&](const ByteRange& range) {
        return range.offset >= behind && range.offset < zip.records[3] / kMiB * kMiB;
    }));
}

TEST(PartReads, AStoreThatTakesFewRequestsIsAskedForFewStepsAtOnce) {
    const ZipFile zip(std::vector<std::size_t>(kRecords, kRecordSize), ZipFile::Form::kZip64);
    Loading loading(zip.bytes);
    loading.store.slow_down_to(2);
    for (const std::size_t record : {0U, 1U}) {
        EXPECT_FALSE(loading.is_there(zip.records[record]));
    }
    loading.store.forget_ranges();
    EXPECT_FALSE(loading.is_there(zip.records[2]));
    // Its own, and two steps.
    EXPECT_EQ(loading.store.ranges().size(), 3U);
}

TEST(PartReads, AFileWithoutPartsIsReadAsEver) {
    Loading loading(content_of(kRecords * kRecordSize));
    int waited = 0;
    for (std::size_t i = 0; i < kRecords; ++i) {
        waited += loading.is_there(i * kRecordSize) ? 0 : 1;
    }
    EXPECT_GT(waited, static_cast<int>(kRecords) / 2);
}

}  // namespace
}  // namespace ckptfs::testing
