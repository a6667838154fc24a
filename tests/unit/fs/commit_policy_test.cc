// SPDX-License-Identifier: Apache-2.0
#include "fs/failures/commit_policy.h"

#include <gtest/gtest.h>

namespace ckptfs::fs {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

const WallTime kFailed{hours(1000)};
const WallTime kNow = kFailed + seconds(60);
constexpr Milliseconds kTtl = hours(1);

FailedRecord record(std::optional<std::string> etag_before) {
    FailedRecord record;
    record.key = "p/step/shard";
    record.etag_before = std::move(etag_before);
    record.failed = kFailed;
    return record;
}

NameState object(const std::string& etag, WallTime modified) {
    NameState state;
    state.object.emplace();
    state.object->etag = etag;
    state.object->last_modified = modified;
    return state;
}

TEST(StillFailed, WhereNothingIsThere) {
    EXPECT_TRUE(still_failed(record(""), {}, kNow, kTtl));
    EXPECT_TRUE(still_failed(record(std::nullopt), {}, kNow, kTtl));
}

TEST(StillFailed, WhereTheVersionBeforeIsThere) {
    EXPECT_TRUE(still_failed(record("\"1\""), object("\"1\"", kFailed - hours(1)), kNow, kTtl));
    EXPECT_TRUE(still_failed(record("\"1\""), object("\"1\"", kFailed), kNow, kTtl));
}

TEST(StillFailed, NotWhereAnotherVersionIsThere) {
    EXPECT_FALSE(still_failed(record("\"1\""), object("\"2\"", kFailed), kNow, kTtl));
    EXPECT_FALSE(still_failed(record(""), object("\"2\"", kFailed), kNow, kTtl));
    // Its upload had begun before.
    EXPECT_FALSE(still_failed(record(""), object("\"2\"", kFailed - seconds(5)), kNow, kTtl));
}

TEST(StillFailed, NotWhereTheSameBytesWereWrittenAgain) {
    EXPECT_FALSE(still_failed(record("\"1\""), object("\"1\"", kFailed + seconds(1)), kNow, kTtl));
}

TEST(StillFailed, WhereTheVersionBeforeIsNotKnownOnlyTimeTells) {
    EXPECT_TRUE(still_failed(record(std::nullopt), object("\"2\"", kFailed), kNow, kTtl));
    EXPECT_FALSE(still_failed(record(std::nullopt), object("\"2\"", kFailed + seconds(1)), kNow, kTtl));
}

TEST(StillFailed, WhereACommitThatFailedHasTakenEffect) {
    FailedRecord failed = record("\"1\"");
    failed.unanswered = {"id 1", "id 2"};
    NameState state = object("\"2\"", kFailed + seconds(1));
    state.object->metadata[kWriteIdMetadata] = "id 2";
    EXPECT_TRUE(still_failed(failed, state, kNow, kTtl));
    state.object->metadata[kWriteIdMetadata] = "id 3";
    EXPECT_FALSE(still_failed(failed, state, kNow, kTtl));
}

TEST(StillFailed, NotWhereItsDirectoryWasMadeAnew) {
    NameState state;
    state.directory_made = kFailed;
    EXPECT_TRUE(still_failed(record(""), state, kNow, kTtl))
        << "files often fail in the second their directory is made";
    state.directory_made = kFailed + seconds(1);
    EXPECT_FALSE(still_failed(record(""), state, kNow, kTtl));
}

TEST(StillFailed, NotForEver) {
    EXPECT_TRUE(still_failed(record(""), {}, kFailed + kTtl, kTtl));
    EXPECT_FALSE(still_failed(record(""), {}, kFailed + kTtl + seconds(1), kTtl));
}

TEST(StillFailed, ForNoLongerWhereItsDirectoryWasRenamed) {
    FailedRecord moved = record("");
    moved.since = kFailed - hours(2);
    EXPECT_FALSE(still_failed(moved, {}, kNow, kTtl));
    EXPECT_TRUE(still_failed(moved, {}, kNow, hours(3)));
    moved.since = kFailed + hours(2);
    EXPECT_FALSE(still_failed(moved, {}, kFailed + kTtl + seconds(1), kTtl)) << "no record tells of the future";
}

TEST(CountsOnlyElsewhere, WhatAnotherMountHasWrittenForADay) {
    FailedRecord others = record("");
    EXPECT_FALSE(counts_only_elsewhere(others, kFailed + hours(2), kTtl)) << "this mount's own";
    others.record_etag = "\"1\"";
    EXPECT_FALSE(counts_only_elsewhere(others, kFailed + kTtl, kTtl));
    EXPECT_TRUE(counts_only_elsewhere(others, kFailed + hours(2), kTtl));
    EXPECT_FALSE(counts_only_elsewhere(others, kFailed + hours(25), kTtl));
    EXPECT_FALSE(counts_only_elsewhere(others, kFailed + hours(25), hours(30)));
}

TEST(IsInTheMaking, UntilTheFileIsThereOrItIsOld) {
    OpenUpload upload;
    upload.initiated = kFailed;
    EXPECT_TRUE(is_in_the_making(upload, std::nullopt, kNow, kTtl));
    EXPECT_TRUE(is_in_the_making(upload, object("\"1\"", kFailed - seconds(1)).object, kNow, kTtl));
    EXPECT_FALSE(is_in_the_making(upload, object("\"1\"", kFailed).object, kNow, kTtl));
    EXPECT_FALSE(is_in_the_making(upload, std::nullopt, kFailed + kTtl + seconds(1), kTtl));
    // Last-Modified has no fractions.
    upload.initiated = kFailed + std::chrono::milliseconds(700);
    EXPECT_FALSE(is_in_the_making(upload, object("\"1\"", kFailed).object, kNow, kTtl));
    EXPECT_TRUE(is_in_the_making(upload, object("\"1\"", kFailed - seconds(1)).object, kNow, kTtl));
}

TEST(RecordText, SaysWhatItWasGiven) {
    FailedRecord written = record("\"1\"");
    written.host = "node7";
    written.reason = "a line\nand what looks like\nhost: another";
    written.unanswered = {"id 1", "id 2"};
    const FailedRecord read = parse_record(record_text(written));
    EXPECT_EQ(read.host, "node7");
    EXPECT_EQ(read.reason, "a line\\x0aand what looks like\\x0ahost: another");
    EXPECT_EQ(read.etag_before, "\"1\"");
    EXPECT_EQ(read.unanswered, written.unanswered);
    EXPECT_FALSE(read.since);
    written.since = kFailed - seconds(7);
    EXPECT_EQ(parse_record(record_text(written)).since, kFailed - seconds(7));
    EXPECT_EQ(parse_record(record_text(record(""))).etag_before, "");
}

TEST(RecordText, SaysForHowLongTheFileHadFailed) {
    FailedRecord written = record("");
    EXPECT_EQ(record_text(written).find("late"), std::string::npos);
    written.late = seconds(90);
    written.noted = kFailed;
    written.began = kFailed;
    EXPECT_EQ(parse_record(record_text(written)).late, seconds(90));
    EXPECT_EQ(parse_record(record_text(written)).noted, kFailed);
    EXPECT_EQ(parse_record(record_text(written)).began, kFailed);
    EXPECT_EQ(failed_by(kFailed, seconds(90)), kFailed - seconds(90));
    EXPECT_EQ(failed_by(kFailed, parse_record("late: 9223372036\n").late), WallTime{});
    for (const char* text : {"late: \n", "late: soon\n", "late: -1\n", "late: 9223372036854775807\n"}) {
        EXPECT_EQ(parse_record(text).late, seconds(0)) << text;
    }
}

TEST(RecordText, IsCutWithinItsReasonWhereItIsLongerThanWhatIsRead) {
    FailedRecord written = record("\"1\"");
    // As of a key that is named twice and escaped.
    written.reason = std::string(8192, 'x');
    written.unanswered = {"id 1", "id 2"};
    const FailedRecord read = parse_record(record_text(written).substr(0, 4096));
    EXPECT_EQ(read.etag_before, "\"1\"");
    EXPECT_EQ(read.unanswered, written.unanswered);
    EXPECT_EQ(read.reason.find_first_not_of('x'), std::string::npos);
    EXPECT_FALSE(read.reason.empty());
}

TEST(RecordText, ThatIsEmptyOrStrangeSaysNothing) {
    for (const char* text : {"", "\n\n", "host", "etag-before:", "something: else", "\n\xff"}) {
        const FailedRecord read = parse_record(text);
        EXPECT_EQ(read.host + read.reason, "") << text;
        EXPECT_FALSE(read.etag_before) << text;
    }
    for (const char* text : {"since: \n", "since: soon\n", "since: -1\n", "since: 9223372036854775807\n"}) {
        EXPECT_FALSE(parse_record(text).since) << text;
    }
}

TEST(IsTemporaryName, KnowsWhatProgramsChoose) {
    for (const char* name : {".tmpA1b2C3", ".tmp", ".metadata.tmp", "x.partial", "x.0123.partial", "x.temp", "x.part",
                             "model.bin.incomplete", ".model.bin.a1B2c3"}) {
        EXPECT_TRUE(is_temporary_name(name)) << name;
    }
    for (const char* name :
         {"", ".metadata", "__0_1.distcp", "model.bin", ".hidden", "x.a1B2c3", ".gitignore", "tmp", ".x.tar.gz12"}) {
        EXPECT_FALSE(is_temporary_name(name)) << name;
    }
}

TEST(MayBeMissing, MarkersAndLogs) {
    const WriteConfig config;
    EXPECT_TRUE(is_commit_marker("p/step/.metadata", config));
    EXPECT_TRUE(is_commit_marker(".metadata", config));
    EXPECT_FALSE(is_commit_marker("p/.metadata/shard", config));
    EXPECT_TRUE(may_be_missing("p/step/train.log", config));
    EXPECT_FALSE(may_be_missing("p/step/shard", config));
}

}  // namespace
}  // namespace ckptfs::fs
