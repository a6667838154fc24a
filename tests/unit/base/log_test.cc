// SPDX-License-Identifier: Apache-2.0
#include "ckptfs/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <future>
#include <string>

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
    ::testing::internal::CaptureStderr();
    log_warning("the store is slow {}");
    log_debug("not shown");
    const std::string output = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(output, ::testing::HasSubstr("warning: the store is slow {}\n"));
    EXPECT_THAT(output, ::testing::Not(::testing::HasSubstr("not shown")));
}

// Standard error is what the first of these reads and the second one writes.
class LogOfOthers {
public:
    explicit LogOfOthers(std::array<int, 2> ends) : before_(dup(STDERR_FILENO)), ends_(ends) {
        EXPECT_EQ(fcntl(ends_[0], F_SETFL, O_RDWR | O_NONBLOCK), 0);
        EXPECT_EQ(dup2(ends_[1], STDERR_FILENO), STDERR_FILENO);
    }
    ~LogOfOthers() {
        dup2(before_, STDERR_FILENO);
        for (const int fd : {before_, ends_[0], ends_[1]}) {
            close(fd);
        }
    }
    LogOfOthers(const LogOfOthers&) = delete;
    LogOfOthers& operator=(const LogOfOthers&) = delete;

    [[nodiscard]] int reader() const { return ends_[0]; }
    std::string read_all() {
        std::string text;
        std::array<char, 4096> page{};
        for (ssize_t got = 0; (got = ::read(ends_[0], page.data(), page.size())) > 0;) {
            text.append(page.data(), static_cast<std::size_t>(got));
        }
        return text;
    }

private:
    const int before_;
    const std::array<int, 2> ends_;
};

// One that is full, as of a container's log that is not taken any more.
std::array<int, 2> full_pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_NONBLOCK), 0);
    const std::string page(4096, 'x');
    while (::write(ends[1], page.data(), page.size()) > 0) {
    }
    // Who writes to it blocks.
    EXPECT_EQ(fcntl(ends[1], F_SETFL, 0), 0);
    return ends;
}

std::array<int, 2> terminal() {
    std::array<int, 2> ends{};
    EXPECT_EQ(openpty(&ends[0], &ends[1], nullptr, nullptr, nullptr), 0);
    return ends;
}

TEST(Log, DoesNotWaitForItsReader) {
    LogOfOthers full(full_pipe());
    auto logged = std::async(std::launch::async, [] {
        log_warning("first");
        log_warning("second");
    });
    const bool waits = logged.wait_for(std::chrono::seconds(10)) != std::future_status::ready;
    EXPECT_FALSE(waits);
    full.read_all();
    if (!waits) {
        log_warning("third");
        const std::string output = full.read_all();
        EXPECT_THAT(output, ::testing::HasSubstr("2 lines of the log were dropped"));
        EXPECT_THAT(output, ::testing::HasSubstr("third\n"));
        EXPECT_THAT(output, ::testing::Not(::testing::HasSubstr("second")));
    }
}

TEST(Log, DoesNotWaitForATerminalThatHasRoomForAPartOfALine) {
    LogOfOthers shown(terminal());
    // More than it takes before somebody reads; its room is never just one of these lines.
    auto logged = std::async(std::launch::async, [] {
        for (std::size_t line = 0; line < 300; ++line) {
            log_warning(std::string(300 + line, 'x'));
        }
    });
    EXPECT_EQ(logged.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    EXPECT_EQ(fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK, 0) << "others write to it as well";
    while (logged.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
        shown.read_all();
    }
    std::string output;
    for (int times = 0; times < 1000 && output.find("warning: next") == std::string::npos; ++times) {
        log_warning("next");
        pollfd arrived{shown.reader(), POLLIN, 0};
        EXPECT_EQ(poll(&arrived, 1, 10'000), 1);
        output += shown.read_all();
    }
    EXPECT_THAT(output, ::testing::ContainsRegex("\r\nckptfs: [0-9]+ lines of the log were dropped"));
}

TEST(Log, TellsTheJournalThePriorityAndNoTime) {
    set_log_reader(LogReader::kJournal);
    set_log_level(LogLevel::kDebug);
    ::testing::internal::CaptureStderr();
    log_error("a");
    log_warning("b");
    log_info("c");
    log_debug("d");
    const std::string output = ::testing::internal::GetCapturedStderr();
    set_log_level(LogLevel::kInfo);
    set_log_reader(LogReader::kPeople);
    EXPECT_EQ(output, "<3>error: a\n<4>warning: b\n<6>info: c\n<7>debug: d\n");
}

TEST(Log, ShowsWhatTheLevelAsksFor) {
    set_log_level(LogLevel::kError);
    ::testing::internal::CaptureStderr();
    log_warning("hidden");
    log_error("shown");
    set_log_level(LogLevel::kDebug);
    log_debug("details");
    const std::string output = ::testing::internal::GetCapturedStderr();
    set_log_level(LogLevel::kInfo);
    EXPECT_THAT(output, ::testing::Not(::testing::HasSubstr("hidden")));
    EXPECT_THAT(output, ::testing::HasSubstr("error: shown\n"));
    EXPECT_THAT(output, ::testing::HasSubstr("debug: details\n"));
}

TEST(Text, FormatsValues) {
    EXPECT_EQ(format("{} of {:>3}", "part", 7), "part of   7");
}

}  // namespace
}  // namespace ckptfs
