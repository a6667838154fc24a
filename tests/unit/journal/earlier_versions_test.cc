// SPDX-License-Identifier: Apache-2.0
// What a disk has acknowledged may be sent only after the next file of its name was begun (--ack disk): the journal
// tells the two apart.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

#include "journal/journal_text.h"
#include "journal/lost_uploads.h"
#include "journal_fixture.h"
#include "support/fake_store.h"
#include "support/manual_clock.h"
#include "support/stepped_timer.h"

namespace ckptfs {
namespace {

using EarlierVersions = MountJournalTest;

TEST_F(EarlierVersions, ThatAreSentMeanwhileAreNotTheFileThatIsWritten) {
    const auto made = journal();
    testing::ManualClock clock;
    const WallTime before = clock.wall_now();
    clock.move(std::chrono::milliseconds(1));
    const UploadIntent intent = made->intend("run/a.pt", clock.wall_now());
    made->version_sent("run/a.pt.1", before, clock.wall_now(), "of another");
    clock.move(std::chrono::milliseconds(1));
    made->version_sent("run/a.pt", clock.wall_now(), clock.wall_now(), "the file itself");
    const auto left = [&made] { return parse_journal(content_of(made->path())).intents; };
    ASSERT_EQ(left().size(), 1U);
    EXPECT_EQ(left()[0].earlier_etag, "");
    EXPECT_EQ(left()[0].earlier_sent, WallTime{});
    clock.move(std::chrono::seconds(3));
    made->version_sent("run/a.pt", before, before, "the first");
    made->version_sent("run/a.pt", before, clock.wall_now(), "\"the last\"");
    EXPECT_EQ(left()[0].earlier_etag, "\"the last\"");
    EXPECT_EQ(left()[0].earlier_sent, std::chrono::floor<std::chrono::seconds>(clock.wall_now()));
    EXPECT_EQ(made->outlived(intent).earlier_etag, "\"the last\"");
    EXPECT_EQ(left()[0].asked, intent.asked) << "all of it: versions follow each other within a second";
    made->intent_ended(intent);
    made->version_sent("run/a.pt", before, before, "late");
    EXPECT_TRUE(left().empty());
}

TEST_F(EarlierVersions, AreReadAlsoFromJournalsWithoutTheirEtags) {
    const auto intents =
        parse_journal("?1 17 a\n&1 500\n&x\n^1 18 y\n^1 x\n^2 19 z\n^1\n?3 20 b\n^3 21\n&3 x\n").intents;
    ASSERT_EQ(intents.size(), 2U);
    EXPECT_EQ(intents[0].asked, WallTime(std::chrono::seconds(17)) + std::chrono::nanoseconds(500));
    EXPECT_EQ(intents[0].earlier_sent, WallTime(std::chrono::seconds(18)));
    EXPECT_EQ(intents[0].earlier_etag, "y");
    EXPECT_EQ(intents[1].earlier_sent, WallTime(std::chrono::seconds(21)));
    EXPECT_EQ(intents[1].earlier_etag, "");
}

TEST_F(EarlierVersions, ThatAreSentAfterAKillAreNotTheFileThatWasBeingWrittenEither) {
    const auto made = journal();
    testing::ManualClock clock;
    const WallTime before = clock.wall_now();
    testing::FakeStore store;
    testing::SteppedTimer timer;
    LostAnswers answers;
    LostUploads lost({store, timer, clock, *made, answers});
    std::vector<std::string> earlier;
    const auto refuse = [&earlier](const UploadIntent& last, const StoreDone<void>& done) {
        earlier.push_back(last.earlier_etag);
        done(failure(EIO, "the record was refused"));
    };
    adopt(lost, {{"run/a.pt", before + std::chrono::seconds(2), 1, false, before, "the first"}}, refuse);
    const auto left = [&made] { return parse_journal(content_of(made->path())).intents; };
    EXPECT_EQ(left()[0].earlier_etag, "the first");
    // Before others can be told, too: it is sent as the mount begins.
    lost.note({{"run/b.pt", before + std::chrono::seconds(2), 1}});
    made->version_sent("run/b.pt", before, clock.wall_now(), "of another");
    EXPECT_EQ(left()[1].earlier_etag, "of another");
    lost.begin(refuse);
    earlier.clear();
    made->version_sent("run/a.pt", before, clock.wall_now(), "the second");
    EXPECT_EQ(left()[0].earlier_etag, "the second");
    clock.move(std::chrono::minutes(2));
    timer.run();
    EXPECT_EQ(earlier, (std::vector<std::string>{"of another", "the second"}));
}

// A mount that was killed as it took them over has them as well, and knows what it has sent since.
TEST(MergedIntents, AreThereOnceWithWhatAnyKnows) {
    const WallTime asked{std::chrono::seconds(17)};
    const WallTime later = asked + std::chrono::seconds(1);
    const UploadIntent old{"a", asked, 1};
    const UploadIntent taken{"a", asked, 7, false, later, "etag"};
    const UploadIntent other{"a", later, 2, true};
    for (const auto& left : {std::vector<UploadIntent>{old, taken, other}, {other, taken, old, taken}}) {
        const std::vector<UploadIntent> merged = merge_intents(left);
        ASSERT_EQ(merged.size(), 2U);
        const UploadIntent& same = merged[0].asked == asked ? merged[0] : merged[1];
        EXPECT_EQ(same.earlier_sent, later);
        EXPECT_EQ(same.earlier_etag, "etag");
        EXPECT_FALSE(same.file_ended);
    }
    EXPECT_TRUE(merge_intents({other, other})[0].file_ended);
    EXPECT_FALSE(merge_intents({{"a", asked, 1, true}, old})[0].file_ended);
}

}  // namespace
}  // namespace ckptfs
