// SPDX-License-Identifier: Apache-2.0
#include "ckptfs/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"

namespace ckptfs {
namespace {

TEST(Escaped, LeavesOrdinaryTextAlone) {
    EXPECT_EQ(escaped("run/step-100/model.pt"), "run/step-100/model.pt");
    EXPECT_EQ(escaped("größe 模型 🙂"), "größe 模型 🙂");
    EXPECT_EQ(escaped(""), "");
}

TEST(Escaped, ShowsControlCharacters) {
    EXPECT_EQ(escaped("a\nb\tc"), "a\\x0ab\\x09c");
    EXPECT_EQ(escaped("\x1b[2J"), "\\x1b[2J");
    EXPECT_EQ(escaped(std::string_view("\0x", 2)), "\\x00x");
    EXPECT_EQ(escaped("\x7f"), "\\x7f");
    // CSI as one C1 character, a line separator, and a change of direction.
    EXPECT_EQ(escaped("\xc2\x9b"), "\\xc2\\x9b");
    EXPECT_EQ(escaped("\xe2\x80\xa8"), "\\xe2\\x80\\xa8");
    EXPECT_EQ(escaped("\xe2\x80\xae"), "\\xe2\\x80\\xae");
}

TEST(Escaped, ShowsBytesThatAreNotUtf8) {
    EXPECT_EQ(escaped("a\xff"), "a\\xff");
    // Cut short, a lone continuation, overlong, a surrogate, beyond U+10FFFF.
    EXPECT_EQ(escaped("\xe2\x82"), "\\xe2\\x82");
    EXPECT_EQ(escaped("\x80z"), "\\x80z");
    EXPECT_EQ(escaped("\xc0\xaf"), "\\xc0\\xaf");
    EXPECT_EQ(escaped("\xed\xa0\x80"), "\\xed\\xa0\\x80");
    EXPECT_EQ(escaped("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
    // What follows a broken sequence is read afresh.
    EXPECT_EQ(escaped("\xe2\x82z\n"), "\\xe2\\x82z\\x0a");
}

TEST(Log, WritesOneLineToStandardError) {
    testing::internal::CaptureStderr();
    log_warning("the store is slow {}");
    log_debug("not shown");
    const std::string output = testing::internal::GetCapturedStderr();
    EXPECT_THAT(output, testing::HasSubstr("warning: the store is slow {}\n"));
    EXPECT_THAT(output, testing::Not(testing::HasSubstr("not shown")));
}

TEST(Log, TellsTheJournalThePriorityAndNoTime) {
    set_log_reader(LogReader::kJournal);
    set_log_level(LogLevel::kDebug);
    testing::internal::CaptureStderr();
    log_error("a");
    log_warning("b");
    log_info("c");
    log_debug("d");
    const std::string output = testing::internal::GetCapturedStderr();
    set_log_level(LogLevel::kInfo);
    set_log_reader(LogReader::kPeople);
    EXPECT_EQ(output, "<3>error: a\n<4>warning: b\n<6>info: c\n<7>debug: d\n");
}

TEST(Log, ShowsWhatTheLevelAsksFor) {
    set_log_level(LogLevel::kError);
    testing::internal::CaptureStderr();
    log_warning("hidden");
    log_error("shown");
    set_log_level(LogLevel::kDebug);
    log_debug("details");
    const std::string output = testing::internal::GetCapturedStderr();
    set_log_level(LogLevel::kInfo);
    EXPECT_THAT(output, testing::Not(testing::HasSubstr("hidden")));
    EXPECT_THAT(output, testing::HasSubstr("error: shown\n"));
    EXPECT_THAT(output, testing::HasSubstr("debug: details\n"));
}

TEST(Text, FormatsValues) {
    EXPECT_EQ(format("{} of {:>3}", "part", 7), "part of   7");
}

}  // namespace
}  // namespace ckptfs
