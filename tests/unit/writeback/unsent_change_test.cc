// SPDX-License-Identifier: Apache-2.0
#include "writeback/unsent_change.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <variant>

#include "base/digest.h"
#include "base/little_endian.h"

namespace ckptfs {
namespace {

UnsentChange any_change(std::uint64_t number) {
    UnsentChange change;
    change.number = number;
    change.kind = UnsentChange::Kind::kPut;
    change.object.key = "run/\xff not UTF-8\n";
    change.object.size = 5'000'007;
    change.object.etag = "\"e\"";
    change.object.last_modified = WallTime(std::chrono::milliseconds(1'700'000'000'123));
    change.object.metadata = {{"a", "\xfe"}, {"b", ""}};
    change.object.content_type = "text/plain";
    change.object.content_encoding = "zstd";
    change.object.storage_class = "STANDARD_IA";
    change.object.other_headers = {{"cache-control", "no-store"}};
    BodyPiece in_log;
    in_log.bytes = std::string("\0\xff", 2);
    in_log.size = 2;
    BodyPiece in_file;
    in_file.place = BodyPiece::Place::kFile;
    in_file.size = 5'000'000;
    in_file.file = 7;
    in_file.offset = 1 << 20;
    in_file.checksums = {1, 0xffffffff, 3, 4, 5};
    BodyPiece in_object;
    in_object.place = BodyPiece::Place::kObject;
    in_object.size = 5;
    in_object.key = "other";
    in_object.etag = "\"o\"";
    in_object.offset = 3;
    BodyPiece whole = in_object;
    whole.offset = 0;
    whole.is_whole = true;
    change.body = {in_log, in_file, in_object, whole};
    change.source_key = "s";
    change.source_etag = "\"s\"";
    change.is_described = true;
    change.if_none_match = true;
    change.if_match = "\"m\"";
    change.is_barrier = true;
    change.announcement = ".ckptfs/unsent/run/disk-1-u";
    change.awaited = {1, 0xfedcba9876543210};
    return change;
}

TEST(UnsentChange, IsReadBackAsItWasWritten) {
    const UnsentChange change = any_change(3);
    const LogContents contents = parse_log(encode_entry(change));
    ASSERT_EQ(contents.entries.size(), 1U);
    const auto& read = std::get<UnsentChange>(contents.entries[0]);
    EXPECT_EQ(read.number, 3U);
    EXPECT_EQ(read.kind, change.kind);
    EXPECT_EQ(read.object.key, change.object.key);
    EXPECT_EQ(read.object.size, change.object.size);
    EXPECT_EQ(read.object.etag, change.object.etag);
    EXPECT_EQ(read.object.last_modified, change.object.last_modified);
    EXPECT_EQ(read.object.metadata, change.object.metadata);
    EXPECT_EQ(read.object.content_type, change.object.content_type);
    EXPECT_EQ(read.object.content_encoding, change.object.content_encoding);
    EXPECT_EQ(read.object.storage_class, change.object.storage_class);
    EXPECT_EQ(read.object.other_headers, change.object.other_headers);
    EXPECT_EQ(read.body, change.body);
    EXPECT_EQ(read.source_key, change.source_key);
    EXPECT_EQ(read.source_etag, change.source_etag);
    EXPECT_EQ(read.if_match, change.if_match);
    EXPECT_TRUE(read.is_described && read.if_none_match && read.is_barrier);
    EXPECT_EQ(read.announcement, change.announcement);
    EXPECT_EQ(read.awaited, change.awaited);
}

// A later version's: its bodies are not to be removed as if nobody needed them.
TEST(UnsentChange, AWholeEntryOfAnotherFormIsNotTakenForOneThatIsCutOff) {
    const std::string first = encode_entry(any_change(1));
    std::string other = encode_entry(SentChange{2, "key", "", ""});
    // Its first member, 2, becomes a text of one byte: 'a'.
    const std::string content = std::string("\x84\x61\x61", 3) + other.substr(10);
    std::string entry(8, '\0');
    store_u32(entry.data(), static_cast<std::uint32_t>(content.size()));
    store_u32(entry.data() + 4, crc32c(as_bytes(content)));
    const LogContents contents = parse_log(first + entry + content);
    EXPECT_EQ(contents.entries.size(), 1U);
    EXPECT_TRUE(contents.is_foreign);
    EXPECT_FALSE(parse_log(first + entry + content.substr(1)).is_foreign);
    EXPECT_FALSE(parse_log(first + std::string(100, '\0')).is_foreign);
}

TEST(UnsentChange, WhatWasSentIsReadBack) {
    const SentChange sent{9, "key", "\"here\"", "\"there\""};
    const LogContents contents = parse_log(encode_entry(sent));
    ASSERT_EQ(contents.entries.size(), 1U);
    EXPECT_EQ(std::get<SentChange>(contents.entries[0]), sent);
}

TEST(UnsentChange, ThatAMarkerWasGivenUpIsReadBack) {
    const GivenUpChange given_up{9, "key", WallTime(std::chrono::hours(500'000)) + std::chrono::milliseconds(7)};
    const LogContents contents = parse_log(encode_entry(given_up));
    ASSERT_EQ(contents.entries.size(), 1U);
    EXPECT_EQ(std::get<GivenUpChange>(contents.entries[0]), given_up);
}

TEST(UnsentChange, ALogEndsAtAnEntryThatIsCutOff) {
    const std::string first = encode_entry(any_change(1));
    const std::string text = first + encode_entry(SentChange{1, "", "", ""}) + encode_entry(any_change(2));
    const std::size_t third = text.size() - encode_entry(any_change(2)).size();
    for (std::size_t size = 0; size <= text.size(); ++size) {
        const LogContents contents = parse_log(text.substr(0, size));
        const std::size_t entries = (size >= first.size() ? 1 : 0) + (size >= third ? 1 : 0) + (size == text.size());
        ASSERT_EQ(contents.entries.size(), entries) << size;
        ASSERT_LE(contents.whole, size);
    }
}

TEST(UnsentChange, ADamagedEntryEndsTheLog) {
    const std::string first = encode_entry(any_change(1));
    const std::string text = first + encode_entry(any_change(2));
    for (std::size_t at = first.size(); at < text.size(); at += 3) {
        std::string damaged = text;
        damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
        const LogContents contents = parse_log(damaged);
        ASSERT_EQ(contents.entries.size(), 1U) << at;
        ASSERT_EQ(contents.whole, first.size()) << at;
    }
}

// Of which a power cut may leave any pages.
TEST(UnsentChange, AHoleInTheLastBatchIsNoDamageAndOneBeforeABatchIs) {
    const std::string first = encode_entry(any_change(1));
    std::string batch = encode_entry(any_change(2)) + encode_entry(any_change(3)) + encode_entry(any_change(4));
    begin_batch(batch);
    std::string next = encode_entry(any_change(5));
    begin_batch(next);
    for (std::size_t at = first.size() + 8; at < first.size() + encode_entry(any_change(2)).size(); at += 3) {
        std::string damaged = first + batch;
        damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
        const LogContents contents = parse_log(damaged);
        ASSERT_EQ(contents.entries.size(), 1U) << at;
        ASSERT_EQ(contents.whole, first.size()) << at;
        ASSERT_FALSE(contents.is_damaged_inside) << at;
        ASSERT_TRUE(parse_log(damaged + next).is_damaged_inside) << at;
    }
    EXPECT_EQ(parse_log(first + batch + next).entries.size(), 5U);
}

// A file of a few bytes lies in the log as it is: here -0.0 and 0.0.
TEST(UnsentChange, WhatIsCutOffIsNoDamageWhateverItHolds) {
    UnsentChange change = any_change(2);
    BodyPiece piece;
    piece.bytes = std::string("before") + std::string("\0\0\0\x80\0\0\0\0", 8) + "behind";
    piece.size = piece.bytes.size();
    change.body = {piece};
    const std::string first = encode_entry(any_change(1));
    std::string batch = encode_entry(change);
    begin_batch(batch);
    for (std::size_t left = 1; left < batch.size(); ++left) {
        ASSERT_FALSE(parse_log(first + batch.substr(0, left)).is_damaged_inside) << left;
    }
}

TEST(UnsentChange, BytesThatAreNoLogAreNone) {
    EXPECT_TRUE(parse_log("").entries.empty());
    EXPECT_TRUE(parse_log(std::string(100, '\0')).entries.empty());
    EXPECT_TRUE(parse_log(std::string(100, '\xff')).entries.empty());
}

}  // namespace
}  // namespace ckptfs
