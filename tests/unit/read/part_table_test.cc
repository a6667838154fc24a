// SPDX-License-Identifier: Apache-2.0
#include "read/part_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "read/part_files.h"

namespace ckptfs::testing {
namespace {

PartOffsets records_of(const std::string& file, std::size_t end) {
    return zip_records(as_bytes(file).last(std::min(end, file.size())), file.size());
}

PartOffsets records_of(const std::string& file) {
    return records_of(file, file.size());
}

PartOffsets tensors_of(const std::string& file, std::size_t head) {
    return safetensors_tensors(as_bytes(file).first(std::min(head, file.size())), file.size());
}

TEST(ZipRecords, AreThoseOfTheCentralDirectory) {
    const ZipFile zip({1000, 70'000, 3});
    EXPECT_EQ(zip.records, (PartOffsets{0, zip.records[1], zip.records[2]}));
    EXPECT_EQ(records_of(zip.bytes), zip.records);
}

TEST(ZipRecords, AreFoundInTheEndOfTheFileAlone) {
    const ZipFile zip({1000, 70'000, 3});
    EXPECT_EQ(records_of(zip.bytes, zip.end_size()), zip.records);
    EXPECT_TRUE(records_of(zip.bytes, zip.end_size() - 1).empty());
    EXPECT_TRUE(records_of(zip.bytes, 10).empty());
}

TEST(ZipRecords, MayBeDescribedByZip64) {
    const ZipFile zip({1000, 70'000, 3}, ZipFile::Form::kZip64);
    EXPECT_EQ(records_of(zip.bytes), zip.records);
    const ZipFile large({1000, 70'000, 3}, ZipFile::Form::kOnlyZip64);
    EXPECT_EQ(records_of(large.bytes), large.records);
}

TEST(ZipRecords, OfAZipFileBehindOtherBytesAreNot) {
    const ZipFile zip({1000, 70'000, 3});
    EXPECT_TRUE(records_of("other bytes" + zip.bytes).empty());
}

TEST(ZipRecords, AreSortedAndEachThereOnce) {
    ZipFile zip({1000, 70'000, 3});
    zip.name_in_directory({2, 0, 2});
    EXPECT_EQ(records_of(zip.bytes), (PartOffsets{0, zip.records[2]}));
}

TEST(ZipRecords, OfADamagedDirectoryLieInFrontOfIt) {
    const ZipFile zip({1000, 70'000, 3});
    const std::size_t directory = zip.bytes.size() - zip.end_size();
    for (std::size_t place = directory; place < zip.bytes.size(); ++place) {
        std::string damaged = zip.bytes;
        damaged[place] = static_cast<char>(~damaged[place]);
        const PartOffsets found = records_of(damaged);
        EXPECT_TRUE(std::is_sorted(found.begin(), found.end()));
        EXPECT_TRUE(found.empty() || found.back() < directory) << place;
    }
}

TEST(SafetensorsTensors, AreThoseOfTheHeader) {
    const std::string header =
        R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[4],"data_offsets":[16,32]},)"
        R"("a":{"dtype":"F32","shape":[2,2],"data_offsets": [ 0 , 16]}})";
    const std::string file = safetensors_file(header, 32);
    const std::uint64_t data = 8 + header.size();
    EXPECT_EQ(tensors_of(file, file.size()), (PartOffsets{data, data + 16}));
    EXPECT_EQ(tensors_of(file, data), (PartOffsets{data, data + 16}));
    EXPECT_TRUE(tensors_of(file, data - 1).empty());
}

TEST(SafetensorsTensors, OfAnEmptyOneAreNone) {
    EXPECT_TRUE(tensors_of(safetensors_file("{}", 0), 100).empty());
}

TEST(SafetensorsTensors, BehindTheEndAreNone) {
    const std::string file = safetensors_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}})", 9);
    EXPECT_TRUE(tensors_of(file, file.size()).empty());
}

TEST(SafetensorsTensors, OfOtherFilesAreNone) {
    EXPECT_TRUE(tensors_of("", 0).empty());
    EXPECT_TRUE(tensors_of(std::string(100, '{'), 100).empty());
    EXPECT_TRUE(tensors_of(std::string(100, '\0'), 100).empty());
    EXPECT_TRUE(tensors_of(safetensors_file(R"({"a":{"data_offsets":[x]}})", 9), 100).empty());
    EXPECT_TRUE(tensors_of(safetensors_file(R"({"a":{"data_offsets")", 9), 100).empty());
}

}  // namespace
}  // namespace ckptfs::testing
