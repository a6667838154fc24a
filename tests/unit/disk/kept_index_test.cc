// SPDX-License-Identifier: Apache-2.0
#include "disk/kept_index.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace ckptfs {
namespace {

ObjectInfo object_of(const std::string& etag, std::uint64_t size, const std::string& write_id) {
    ObjectInfo object;
    object.key = "p/step/shard";
    object.etag = etag;
    object.size = size;
    if (!write_id.empty()) {
        object.metadata[kWriteIdMetadata] = write_id;
    }
    return object;
}

TEST(KeptIndex, EachVersionHasANameOfItsOwn) {
    const auto version = kept_version("store/bucket", object_of("\"e\"", 5, "id"), false);
    ASSERT_TRUE(version);
    EXPECT_EQ(version->header(5).size(), kIndexHeaderSize);
    for (const auto& other : {kept_version("store/other", object_of("\"e\"", 5, "id"), false),
                              kept_version("store/bucket", object_of("\"f\"", 5, "id"), false),
                              kept_version("store/bucket", object_of("\"e\"", 6, "id"), false),
                              kept_version("store/bucket", object_of("\"e\"", 5, "di"), false),
                              kept_version("store/bucket", object_of("\"e\"", 5, "id"), true)}) {
        ASSERT_TRUE(other);
        EXPECT_NE(other->file_name(), version->file_name());
        EXPECT_FALSE(other->size_in(version->header(5)));
    }
}

TEST(KeptIndex, ACopyOfWhatCkptfsWroteIsTheSameVersion) {
    ObjectInfo object = object_of("\"e\"", 5, "id");
    object.last_modified = WallTime(std::chrono::seconds(1));
    ObjectInfo copy = object;
    copy.key = "p/step.tmp/shard";
    copy.last_modified = WallTime(std::chrono::seconds(2));
    EXPECT_EQ(kept_version("s", object, false)->file_name(), kept_version("s", copy, false)->file_name());
    object.metadata.clear();
    copy = object;
    copy.key = "p/step.tmp/shard";
    EXPECT_NE(kept_version("s", object, false)->file_name(), kept_version("s", copy, false)->file_name());
}

// A copy by one request keeps the ID, and one in parts gets its own.
TEST(KeptIndex, ARenamedVersionIsThatOfItsCopy) {
    for (const bool is_encoded : {false, true}) {
        const auto kept = kept_version("s", object_of("\"e-2\"", 5, "id"), is_encoded);
        const std::string header = kept->header(7);
        const auto renamed = kept_rename("s", header, {"\"e-2\"", 5, "", "\"f\"", ""});
        ASSERT_TRUE(renamed);
        EXPECT_EQ(renamed->from.file_name(), kept->file_name());
        EXPECT_EQ(renamed->to.file_name(), kept_version("s", object_of("\"f\"", 5, "id"), is_encoded)->file_name());
        EXPECT_EQ(renamed->size, 7U);
        const auto in_parts = kept_rename("s", header, {"\"e-2\"", 5, "id", "\"f-2\"", "new"});
        ASSERT_TRUE(in_parts);
        EXPECT_EQ(in_parts->to.file_name(), kept_version("s", object_of("\"f-2\"", 5, "new"), is_encoded)->file_name());
    }
}

TEST(KeptIndex, WhatIsNotKnownToBeTheObjectsIsNotRenamed) {
    const auto kept = kept_version("s", object_of("\"e\"", 5, "id"), false);
    const std::string header = kept->header(5);
    const RenamedObject object{"\"e\"", 5, "", "\"f\"", ""};
    ASSERT_TRUE(kept_rename("s", header, object));
    EXPECT_FALSE(kept_rename("t", header, object));
    EXPECT_FALSE(kept_rename("s", header, {"\"d\"", 5, "", "\"f\"", ""}));
    EXPECT_FALSE(kept_rename("s", header, {"\"e\"", 6, "", "\"f\"", ""}));
    // By an ETag alone the bytes are not known on every store.
    EXPECT_FALSE(kept_rename("s", header, {"\"e\"", 5, "", "\"f\"", "new"}));
    EXPECT_FALSE(kept_rename("s", header, {"\"e\"", 5, "other", "\"f\"", "new"}));
    for (std::size_t length = 0; length < header.size(); length += 7) {
        EXPECT_FALSE(kept_rename("s", header.substr(0, length), object)) << length;
    }
    ObjectInfo by_others = object_of("\"e\"", 5, "");
    by_others.last_modified = WallTime(std::chrono::seconds(1));
    EXPECT_FALSE(kept_rename("s", kept_version("s", by_others, false)->header(5), object));
}

// Some stores give an object of the same size the same ETag.
TEST(KeptIndex, WhatOthersWroteIsToldApartByItsTime) {
    ObjectInfo object = object_of("\"e\"", 5, "");
    EXPECT_FALSE(kept_version("s", object, false));
    object.last_modified = WallTime(std::chrono::seconds(1));
    const auto first = kept_version("s", object, false);
    object.last_modified = WallTime(std::chrono::seconds(2));
    const auto second = kept_version("s", object, false);
    ASSERT_TRUE(first && second);
    EXPECT_NE(first->file_name(), second->file_name());
    object.etag.clear();
    EXPECT_FALSE(kept_version("s", object, false));
}

TEST(KeptIndex, AKeyThatLeavesNoRoomIsNotKept) {
    ObjectInfo object = object_of("\"e\"", 5, "id");
    object.metadata.clear();
    object.last_modified = WallTime(std::chrono::seconds(1));
    object.key = std::string(kIndexHeaderSize, 'k');
    EXPECT_TRUE(kept_version("s", object, false)->header(5).empty());
}

TEST(KeptIndex, ADamagedHeaderTellsNoSize) {
    const auto version = kept_version("s", object_of("\"e\"", 5, "id"), false);
    const std::string header = version->header(1234567);
    EXPECT_EQ(version->size_in(header), 1234567U);
    EXPECT_FALSE(version->size_in(header.substr(0, header.size() - 1)));
    EXPECT_FALSE(version->size_in(""));
    for (std::size_t i = 0; i < header.size(); i += i < 200 ? 1 : 97) {
        std::string damaged = header;
        damaged[i] = static_cast<char>(damaged[i] ^ 1);
        EXPECT_FALSE(version->size_in(damaged)) << i;
    }
}

TEST(KeptIndex, VersionsOfOneETagHaveNamesThatBeginAlike) {
    const auto version = kept_version("s", object_of("\"e\"", 5, "id"), false);
    const std::string begin = file_name_prefix("s", "\"e\"");
    EXPECT_TRUE(version->file_name().starts_with(begin));
    EXPECT_TRUE(kept_version("s", object_of("\"e\"", 6, "other"), true)->file_name().starts_with(begin));
    EXPECT_FALSE(kept_version("s", object_of("\"f\"", 5, "id"), false)->file_name().starts_with(begin));
}

TEST(KeptIndex, HalfARecordIsNone) {
    const auto record = encode_record(7, 0x0123456789ABCDEF);
    EXPECT_EQ(decode_record(7, record), 0x0123456789ABCDEFU);
    EXPECT_FALSE(decode_record(8, record));
    EXPECT_FALSE(decode_record(7, ByteSpan(record).first(kRecordSize - 1)));
    EXPECT_FALSE(decode_record(0, std::array<std::byte, kRecordSize>{}));
    for (std::size_t i = 0; i < kRecordSize; ++i) {
        auto damaged = record;
        damaged[i] ^= std::byte{1};
        EXPECT_FALSE(decode_record(7, damaged));
    }
}

}  // namespace
}  // namespace ckptfs
