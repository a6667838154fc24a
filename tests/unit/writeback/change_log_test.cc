// SPDX-License-Identifier: Apache-2.0
#include "writeback/change_log.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "support/eventually.h"
#include "support/temporary_directory.h"

namespace ckptfs {
using testing::eventually;
namespace {

class ChangeLogTest : public ::testing::Test {
protected:
    static UnsentChange change(std::uint64_t number) {
        UnsentChange change;
        change.number = number;
        change.object.key = "key" + std::to_string(number);
        return change;
    }
    ChangeLog::Opened open(std::uint64_t segment_size = ChangeLog::kSegmentSize) {
        return ChangeLog::open(directory(), segment_size).value();
    }
    static Status append(ChangeLog& log, std::uint64_t number) {
        std::promise<Status> done;
        log.append(change(number), [&done](Status written) { done.set_value(std::move(written)); });
        return done.get_future().get();
    }
    static Status sent(ChangeLog& log, std::uint64_t number) {
        std::promise<Status> done;
        log.sent({number, "", "", ""}, [&done](Status written) { done.set_value(std::move(written)); });
        return done.get_future().get();
    }
    // What was there before.
    static char put(const std::string& path, std::size_t place, char byte) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(static_cast<std::streamoff>(place));
        const auto before = static_cast<char>(file.get());
        file.seekp(static_cast<std::streamoff>(place));
        file.put(byte);
        return before;
    }
    [[nodiscard]] std::string directory() const { return temporary.path().string(); }
    [[nodiscard]] std::size_t segments() const {
        std::size_t count = 0;
        for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator(directory())) {
            ++count;
        }
        return count;
    }
    // What a mount would find that came after a kill.
    [[nodiscard]] std::vector<std::uint64_t> unsent_on_disk() const {
        const testing::TemporaryDirectory copy;
        std::filesystem::copy(directory(), copy.path());
        std::map<std::uint64_t, bool> unsent;
        const ChangeLog::Opened opened = ChangeLog::open(copy.path().string()).value();
        for (const LogEntry& entry : opened.entries) {
            if (const auto* const found = std::get_if<UnsentChange>(&entry)) {
                unsent[found->number] = true;
            } else {
                unsent.erase(number_of(entry));
            }
        }
        std::vector<std::uint64_t> numbers;
        for (const auto& [number, is_unsent] : unsent) {
            numbers.push_back(number);
        }
        return numbers;
    }

    const testing::TemporaryDirectory temporary;
};

TEST_F(ChangeLogTest, WhatWasAppendedIsThereAfterAKill) {
    const auto opened = open();
    ASSERT_TRUE(append(*opened.log, 1));
    ASSERT_TRUE(append(*opened.log, 2));
    ASSERT_TRUE(append(*opened.log, 3));
    EXPECT_EQ(unsent_on_disk(), (std::vector<std::uint64_t>{1, 2, 3}));
    ASSERT_TRUE(sent(*opened.log, 2));
    EXPECT_EQ(unsent_on_disk(), (std::vector<std::uint64_t>{1, 3}));
}

TEST_F(ChangeLogTest, NothingIsLeftWhereAllWasSent) {
    auto opened = open();
    ASSERT_TRUE(append(*opened.log, 1));
    ASSERT_TRUE(sent(*opened.log, 1));
    opened.log->stop();
    EXPECT_EQ(segments(), 0U);
}

TEST_F(ChangeLogTest, AnEndLeavesWhatWasNotSent) {
    {
        const auto opened = open();
        ASSERT_TRUE(append(*opened.log, 1));
        ASSERT_TRUE(append(*opened.log, 2));
        ASSERT_TRUE(sent(*opened.log, 1));
    }
    EXPECT_EQ(unsent_on_disk(), (std::vector<std::uint64_t>{2}));
    auto again = open();
    EXPECT_EQ(again.entries.size(), 3U);
    // By another mount, in another segment.
    ASSERT_TRUE(sent(*again.log, 2));
    again.log->stop();
    EXPECT_EQ(segments(), 0U);
}

// Of two inodes, its directory has one.
TEST_F(ChangeLogTest, WhereThereIsNoRoomSomeIsMade) {
    ASSERT_EQ(::mount("none", directory().c_str(), "tmpfs", 0, "size=1m,nr_inodes=2"), 0) << "needs root";
    const std::string kept = directory() + "/kept";
    ASSERT_TRUE(std::ofstream(kept).put('.'));
    int made = 0;
    ChangeLog::Opened opened =
        ChangeLog::open(directory(), 1, [&] { return made++ == 0 && std::filesystem::remove(kept); }).value();
    const Status first = append(*opened.log, 1);
    const Status second = append(*opened.log, 2);
    EXPECT_TRUE(first) << first.error().message;
    EXPECT_FALSE(second);
    EXPECT_EQ(made, 2);
    EXPECT_EQ(unsent_on_disk(), std::vector<std::uint64_t>{1});
    opened.log.reset();
    EXPECT_EQ(::umount2(directory().c_str(), MNT_DETACH), 0);
}

TEST_F(ChangeLogTest, SegmentsGoFromTheOldestOn) {
    const auto opened = open(1);
    for (std::uint64_t number = 1; number <= 4; ++number) {
        ASSERT_TRUE(append(*opened.log, number));
    }
    EXPECT_EQ(segments(), 4U);
    ASSERT_TRUE(sent(*opened.log, 2));
    EXPECT_EQ(segments(), 5U);
    ASSERT_TRUE(sent(*opened.log, 1));
    // Those of 1 and 2.
    EXPECT_TRUE(eventually([this] { return segments() == 4; }));
    EXPECT_EQ(unsent_on_disk(), (std::vector<std::uint64_t>{3, 4}));
}

// Who is called back may yet have to note elsewhere what it was.
TEST_F(ChangeLogTest, AChangeIsThereUntilItWasAnsweredThatItWasSent) {
    const auto opened = open(1);
    ASSERT_TRUE(append(*opened.log, 1));
    std::promise<std::size_t> there;
    opened.log->sent({1, "", "", ""}, [&](const Status& /*written*/) { there.set_value(segments()); });
    EXPECT_EQ(there.get_future().get(), 2U);
}

// Not the segment of the marker itself, which may be a large one.
TEST_F(ChangeLogTest, ThatAMarkerWasGivenUpIsThereUntilItIsSaidToBeSent) {
    const auto given_up = [](const std::vector<LogEntry>& entries) {
        return std::count_if(entries.begin(), entries.end(),
                             [](const LogEntry& each) { return std::holds_alternative<GivenUpChange>(each); });
    };
    {
        const auto opened = open(1);
        ASSERT_TRUE(append(*opened.log, 1));
        std::promise<Status> noted;
        opened.log->given_up({1, "key", {}}, [&](const Status& written) { noted.set_value(written); });
        ASSERT_TRUE(noted.get_future().get());
        EXPECT_TRUE(eventually([this] { return segments() == 1; }));
        EXPECT_EQ(unsent_on_disk(), std::vector<std::uint64_t>());
    }
    auto again = open(1);
    EXPECT_EQ(given_up(again.entries), 1);
    for (std::uint64_t number = 2; number <= 3; ++number) {
        ASSERT_TRUE(append(*again.log, number));
        ASSERT_TRUE(sent(*again.log, number));
    }
    // It does not keep what comes after it.
    EXPECT_TRUE(eventually([this] { return segments() == 1; }));
    again = open(1);
    EXPECT_EQ(given_up(again.entries), 1);
    ASSERT_TRUE(sent(*again.log, 1));
    again.log->stop();
    EXPECT_EQ(segments(), 0U);
}

TEST_F(ChangeLogTest, ASegmentThatCannotBeRemovedKeepsThoseBehindIt) {
    const auto opened = open(1);
    for (std::uint64_t number = 1; number <= 3; ++number) {
        ASSERT_TRUE(append(*opened.log, number));
    }
    std::filesystem::path first = *std::filesystem::directory_iterator(directory());
    for (const auto& each : std::filesystem::directory_iterator(directory())) {
        first = std::min(first, each.path());
    }
    const std::filesystem::path aside = temporary.path() / "aside";
    std::filesystem::rename(first, aside);
    std::filesystem::create_directory(first);
    ASSERT_TRUE(sent(*opened.log, 1));
    ASSERT_TRUE(sent(*opened.log, 2));
    // Once it has tried.
    opened.log->stop();
    std::filesystem::remove(first);
    std::filesystem::rename(aside, first);
    EXPECT_EQ(segments(), 5U);
    EXPECT_EQ(unsent_on_disk(), std::vector<std::uint64_t>{3});
    const auto again = open(1);
    ASSERT_TRUE(sent(*again.log, 3));
    again.log->stop();
    EXPECT_EQ(segments(), 0U);
}

TEST_F(ChangeLogTest, WhatASegmentTellsOfOneThatIsGoneCountsForNoOther) {
    {
        const auto opened = open(1);
        ASSERT_TRUE(append(*opened.log, 1));
        ASSERT_TRUE(append(*opened.log, 2));
        // In the segment of 2's successor, when that of 1 goes.
        ASSERT_TRUE(sent(*opened.log, 1));
        EXPECT_TRUE(eventually([this] { return segments() == 2; }));
    }
    const auto again = open(1);
    ASSERT_TRUE(append(*again.log, 3));
    EXPECT_EQ(unsent_on_disk(), (std::vector<std::uint64_t>{2, 3}));
}

TEST_F(ChangeLogTest, WhatTheDiskDoesNotTakeFailsAndLaterEntriesAreWhole) {
    const auto opened = open();
    ASSERT_TRUE(append(*opened.log, 1));
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    rlimit small = before;
    // In the middle of an entry.
    small.rlim_cur = encode_entry(change(1)).size() + 11;
    setrlimit(RLIMIT_FSIZE, &small);
    const Status failed = append(*opened.log, 2);
    setrlimit(RLIMIT_FSIZE, &before);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().errno_value, EFBIG);
    EXPECT_NE(failed.error().message.find(directory()), std::string::npos);
    EXPECT_EQ(unsent_on_disk(), (std::vector<std::uint64_t>{1}));
    // What comes before the log has told everybody shares the refusal.
    Status later = append(*opened.log, 3);
    for (int attempt = 0; !later && attempt < 100; ++attempt) {
        later = append(*opened.log, 3);
    }
    ASSERT_TRUE(later) << later.error().message;
    EXPECT_EQ(unsent_on_disk(), (std::vector<std::uint64_t>{1, 3}));
    EXPECT_EQ(segments(), 1U) << "what was refused is cut off";
}

TEST_F(ChangeLogTest, IsNotOpenedWhereAcknowledgedChangesFollowDamage) {
    {
        const auto opened = open();
        ASSERT_TRUE(append(*opened.log, 1));
        ASSERT_TRUE(append(*opened.log, 2));
        ASSERT_TRUE(append(*opened.log, 3));
    }
    // Of the second; its length, too.
    for (const std::size_t place : {1U, 2U, 12U}) {
        SCOPED_TRACE(place);
        const std::string path = directory() + "/1.log";
        const char before = put(path, encode_entry(change(1)).size() + place, '\x7f');
        const auto opened = ChangeLog::open(directory());
        ASSERT_FALSE(opened);
        EXPECT_NE(opened.error().message.find(path), std::string::npos);
        put(path, encode_entry(change(1)).size() + place, before);
    }
    EXPECT_EQ(unsent_on_disk(), (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST_F(ChangeLogTest, TheLastBatchOfASegmentWasAcknowledgedOnceAnotherFollows) {
    {
        const auto opened = open(1);
        ASSERT_TRUE(append(*opened.log, 1));
        ASSERT_TRUE(append(*opened.log, 2));
    }
    put(directory() + "/1.log", 12, '\x7f');
    EXPECT_EQ(ChangeLog::open(directory()).error().errno_value, EIO);
}

// The note of a removal names no key, as what voids a batch that the disk did not take.
TEST_F(ChangeLogTest, ANoteThatFollowsDamageDoesNotHideIt) {
    {
        const auto opened = open(1);
        ASSERT_TRUE(append(*opened.log, 1));
        ASSERT_TRUE(sent(*opened.log, 7));
    }
    put(directory() + "/1.log", 12, '\x7f');
    const auto opened = ChangeLog::open(directory());
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().errno_value, EIO);
}

// By a power cut.
TEST_F(ChangeLogTest, WhatIsCutOffIsNotTakenForDamageByLaterMounts) {
    {
        const auto opened = open();
        ASSERT_TRUE(append(*opened.log, 1));
        ASSERT_TRUE(append(*opened.log, 2));
    }
    put(directory() + "/1.log", encode_entry(change(1)).size() + 12, '\x7f');
    {
        const auto opened = open();
        ASSERT_TRUE(append(*opened.log, 3));
    }
    EXPECT_EQ(unsent_on_disk(), (std::vector<std::uint64_t>{1, 3}));
}

}  // namespace
}  // namespace ckptfs
