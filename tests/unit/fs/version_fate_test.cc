// SPDX-License-Identifier: Apache-2.0
#include "fs/state/version_fate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <vector>

#include "fs/files/noted_change.h"
#include "fs/state/written_version.h"

namespace ckptfs::fs {
namespace {

constexpr pid_t kParent = 100;
constexpr pid_t kChild = 200;
constexpr pid_t kOther = 300;
constexpr auto kInside = VersionFate::Place::kInside;
constexpr auto kEnd = VersionFate::Place::kEnd;

TEST(VersionFate, OfOneThatWasOpenedNothingIsUnsaved) {
    const VersionFate fate;
    const VersionState state = fate.state(kParent, kParent);
    EXPECT_FALSE(state.unsaved || state.written || state.wrote || state.answers_for_it || state.only_appended);
}

TEST(VersionFate, WhoMadeItAnswersForIt) {
    VersionFate fate;
    fate.made(kParent);
    const VersionState state = fate.state(kParent, kParent);
    EXPECT_TRUE(state.unsaved && state.made && state.answers_for_it);
    EXPECT_FALSE(state.written || state.wrote);
    EXPECT_FALSE(fate.state(kChild, kParent).answers_for_it);
}

TEST(VersionFate, OfThoseThatTruncatedItEachAnswersForIt) {
    VersionFate fate;
    fate.made(kParent);
    EXPECT_FALSE(fate.gives_way(kParent)) << "the only one";
    fate.truncated_again(kOther);
    EXPECT_TRUE(fate.state(kParent, kParent).made && fate.state(kParent, kParent).others_made);
    EXPECT_TRUE(fate.state(kOther, kOther).made && fate.state(kOther, kOther).answers_for_it);
    EXPECT_FALSE(fate.gives_way(kChild));
    EXPECT_TRUE(fate.gives_way(kParent));
    EXPECT_FALSE(fate.state(kParent, kParent).answers_for_it);
    EXPECT_FALSE(fate.state(kOther, kOther).others_made);
    EXPECT_TRUE(fate.state(kUnseenProcess, kOther).gave_way) << "no other has closed it";
    EXPECT_FALSE(fate.state(kUnseenProcess, kOther).unseen_made);
    EXPECT_FALSE(fate.gives_way(kOther)) << "the only one left";
    fate.truncated_again(kParent);
    EXPECT_FALSE(fate.state(kUnseenProcess, kOther).gave_way);
    fate.wrote(kOther, kOther, kInside);
    EXPECT_FALSE(fate.gives_way(kParent)) << "bytes may be lost";
    const VersionFate::Generation begun = fate.commit_begins();
    fate.truncated_again(kChild);
    static_cast<void>(fate.committed(begun));
    EXPECT_FALSE(fate.state(kParent, kParent).made);
    EXPECT_TRUE(fate.state(kChild, kChild).made) << "while the commit was under way";
}

TEST(VersionFate, WhoWasKilledInItsOpenAnswersForNothing) {
    VersionFate fate;
    fate.made(kParent);
    fate.truncated_again(kOther);
    fate.disowned(kOther);
    EXPECT_FALSE(fate.state(kParent, kParent).others_made || fate.left_by_killed_writer());
    fate.leave_by_killed_writer(kParent);
    fate.truncated_again(kOther);
    EXPECT_FALSE(fate.left_by_killed_writer());
    fate.disowned(kOther);
    EXPECT_TRUE(fate.left_by_killed_writer()) << "no other vouches for it";
    fate.wrote(kChild, kParent, kInside);
    fate.truncated_again(kOther);
    fate.disowned(kOther);
    EXPECT_FALSE(fate.left_by_killed_writer()) << "what was written since is whole";
}

TEST(VersionFate, AnUnseenProcessThatTruncatedItMayHaveClosedIt) {
    VersionFate fate;
    fate.made(kUnseenProcess);
    fate.truncated_again(kOther);
    EXPECT_TRUE(fate.gives_way(kOther));
    const VersionState state = fate.state(kUnseenProcess, kUnseenProcess);
    EXPECT_TRUE(state.unseen_made);
    EXPECT_FALSE(state.gave_way);
    fate.made(kParent);
    fate.truncated_again(kOther);
    fate.closed_unseen(kParent);
    EXPECT_TRUE(fate.gives_way(kOther));
    EXPECT_TRUE(fate.state(kOther, kOther).unseen_made);
    EXPECT_FALSE(fate.state(kOther, kOther).gave_way);
}

TEST(VersionFate, WhoWasKilledWhileItTruncatedWhatIsSavedLeavesThat) {
    VersionFate fate;
    fate.made(kParent);
    static_cast<void>(fate.committed(fate.commit_begins()));
    fate.truncated_again(kOther);
    fate.disowned(kOther);
    EXPECT_FALSE(fate.state(kParent, kParent).unsaved || fate.left_by_killed_writer());
}

TEST(VersionFate, ForWhatIsUnsavedItsWritersAnswerAndWhoOpenedItForThem) {
    using Processes = std::vector<pid_t>;
    VersionFate fate;
    EXPECT_EQ(fate.answering(), Processes{});
    fate.made(kParent);
    EXPECT_EQ(fate.answering(), Processes{kParent});
    fate.truncated_again(kOther);
    EXPECT_EQ(fate.answering(), Processes{}) << "the death of one harms none of the others";
    fate.wrote(kChild, kParent, kInside);
    fate.wrote(kChild, kParent, kInside);
    EXPECT_EQ(fate.answering(), (Processes{kParent, kChild}));
    static_cast<void>(fate.committed(fate.commit_begins()));
    EXPECT_EQ(fate.answering(), Processes{});
    fate.resized(kOther);
    fate.wrote(kChild, kChild, kEnd);
    EXPECT_EQ(fate.answering(), (Processes{kChild, kOther}));
}

TEST(VersionFate, WhoTruncatedWhatWasSavedTakesThatBack) {
    VersionFate fate;
    fate.made(kParent);
    static_cast<void>(fate.committed(fate.commit_begins()));
    fate.truncated_again(kOther);
    EXPECT_TRUE(fate.state(kOther, kOther).only_truncated_again);
    EXPECT_TRUE(fate.gives_way(kOther));
    EXPECT_FALSE(fate.state(kParent, kParent).unsaved);
    fate.truncated_again(kOther);
    fate.wrote(kParent, kParent, kInside);
    EXPECT_FALSE(fate.state(kOther, kOther).only_truncated_again);
    EXPECT_FALSE(fate.gives_way(kOther));
    static_cast<void>(fate.committed(fate.commit_begins()));
    fate.resized(kParent);
    fate.truncated_again(kOther);
    EXPECT_FALSE(fate.state(kOther, kOther).only_truncated_again) << "it had bytes before";
}

TEST(VersionFate, WhoTruncatesAfterADeathVouchesForTheFile) {
    VersionFate fate;
    fate.made(kParent);
    fate.leave_by_killed_writer(kParent);
    EXPECT_FALSE(fate.left_half());
    fate.truncated_again(kOther);
    EXPECT_FALSE(fate.left_by_killed_writer());
    EXPECT_FALSE(fate.gives_way(kOther)) << "to one that is dead";
    EXPECT_FALSE(fate.state(kOther, kOther).only_truncated_again);
    fate.wrote(kOther, kOther, kInside);
    fate.leave_by_killed_writer(kParent);
    EXPECT_TRUE(fate.left_half());
    fate.truncated_again(kChild);
    EXPECT_TRUE(fate.left_by_killed_writer()) << "bytes were lost";
}

TEST(VersionFate, WhoOnlyMadeItDoesNotAnswerForWhatOthersWrote) {
    VersionFate fate;
    fate.made(kParent);
    fate.wrote(kOther, kOther, kInside);
    EXPECT_FALSE(fate.state(kParent, kParent).answers_for_it);
    EXPECT_TRUE(fate.state(kOther, kOther).answers_for_it);
    fate.resized(kParent);
    EXPECT_TRUE(fate.state(kParent, kParent).answers_for_it) << "the size is its own";
}

TEST(VersionFate, WhoMadeItAnswersForASizeThatWasSetByName) {
    VersionFate fate;
    fate.made(kParent);
    fate.resized_by_name();
    EXPECT_TRUE(fate.state(kParent, kParent).answers_for_it);
    EXPECT_FALSE(fate.gives_way(kParent));
    EXPECT_EQ(fate.answering(), (std::vector<pid_t>{kUnseenProcess, kParent}));
    static_cast<void>(fate.committed(fate.commit_begins()));
    fate.resized_by_name();
    EXPECT_TRUE(fate.state(kParent, kParent).unsaved);
    EXPECT_FALSE(fate.state(kParent, kParent).answers_for_it);
}

TEST(VersionFate, WhoHadTheLockBeforeDoesNotAnswerForWhatReplacesIt) {
    VersionFate fate;
    fate.made(kParent);
    fate.wrote(kParent, kParent, kInside);
    fate.resized(kParent);
    fate.taken_over(kOther);
    fate.wrote(kOther, kOther, kInside);
    EXPECT_FALSE(fate.state(kParent, kParent).answers_for_it);
    EXPECT_EQ(fate.answering(), std::vector<pid_t>{kOther});
}

TEST(VersionFate, WhoseDescriptorWasWrittenByAnswersToo) {
    VersionFate fate;
    fate.wrote(kChild, kParent, kInside);
    EXPECT_TRUE(fate.state(kChild, kParent).wrote);
    EXPECT_FALSE(fate.state(kParent, kParent).wrote);
    EXPECT_TRUE(fate.state(kParent, kParent).answers_for_it);
    EXPECT_EQ(fate.state(kParent, kParent).other_writers, std::vector<pid_t>{kChild});
    EXPECT_FALSE(fate.state(kOther, kOther).answers_for_it);
}

TEST(VersionFate, ACommitSavesWhatWasNotedBeforeItBegan) {
    VersionFate fate;
    fate.made(kParent);
    fate.wrote(kParent, kParent, kInside);
    const VersionFate::Generation begun = fate.commit_begins();
    fate.wrote(kChild, kParent, kInside);
    EXPECT_TRUE(fate.state(kParent, kParent).wrote) << "not before it has succeeded";
    fate.committed(begun);
    EXPECT_FALSE(fate.state(kParent, kParent).wrote);
    EXPECT_FALSE(fate.state(kParent, kParent).made);
    EXPECT_TRUE(fate.state(kChild, kParent).wrote);
    EXPECT_TRUE(fate.state(kParent, kParent).answers_for_it) << "the child writes by its descriptor";
}

TEST(VersionFate, ACommitTellsWhetherAllSinceTheOneBeforeWasAppended) {
    VersionFate fate;
    const auto commit = [&] { return fate.committed(fate.commit_begins()); };
    fate.made(kParent);
    fate.wrote(kParent, kParent, kEnd);
    EXPECT_FALSE(commit()) << "there was none before";
    fate.wrote(kChild, kChild, kEnd);
    EXPECT_TRUE(commit());
    fate.wrote(kChild, kChild, kEnd);
    fate.wrote(kParent, kParent, kInside);
    EXPECT_FALSE(commit());
    fate.resized(kParent);
    EXPECT_FALSE(commit());
    fate.changed_by_mapping();
    EXPECT_FALSE(commit());
    EXPECT_TRUE(commit()) << "nothing";
    fate.wrote(kChild, kChild, kEnd);
    const VersionFate::Generation begun = fate.commit_begins();
    fate.wrote(kParent, kParent, kInside);
    EXPECT_FALSE(fate.committed(begun)) << "it may have been in time";
    EXPECT_FALSE(commit());
}

TEST(VersionFate, WhenAllIsSavedThoseThatWroteStillAnswer) {
    VersionFate fate;
    fate.wrote(kParent, kParent, kInside);
    fate.committed(fate.commit_begins());
    EXPECT_FALSE(fate.state(kParent, kParent).unsaved);
    EXPECT_TRUE(fate.state(kParent, kParent).answers_for_it);
    fate.wrote(kOther, kOther, kInside);
    EXPECT_FALSE(fate.state(kParent, kParent).answers_for_it) << "its own is saved";
}

TEST(VersionFate, AWriteAfterTheDeathRevives) {
    VersionFate fate;
    fate.wrote(kParent, kParent, kInside);
    const VersionFate::Generation before = fate.generation();
    fate.leave_by_killed_writer(kParent);
    EXPECT_NE(fate.generation(), before) << "or a writer that is known would not be noted again";
    EXPECT_TRUE(fate.left_by_killed_writer());
    fate.made(kChild);
    fate.committed(fate.commit_begins());
    EXPECT_TRUE(fate.left_by_killed_writer());
    fate.wrote(kChild, kParent, kInside);
    EXPECT_FALSE(fate.left_by_killed_writer());
}

// A process may close many descriptors of the file, and be shown as dying for long after the first.
TEST(VersionFate, ADeathCountsOnce) {
    VersionFate fate;
    fate.wrote(kParent, kParent, kInside);
    fate.wrote(kOther, kOther, kInside);
    fate.leave_by_killed_writer(kParent);
    EXPECT_TRUE(fate.has_left(kParent));
    fate.wrote(kChild, kParent, kInside);
    EXPECT_FALSE(fate.state(kParent, kParent).answers_for_it);
    EXPECT_EQ(fate.answering(), (std::vector<pid_t>{kChild, kOther}));
    fate.wrote(kParent, kParent, kInside);
    EXPECT_TRUE(fate.state(kParent, kParent).answers_for_it) << "another process of that number";
    EXPECT_FALSE(fate.has_left(kParent));
}

// Its descriptor is the one that a child writes to, and sets the size by.
TEST(VersionFate, ADeathCountsOnceThoughItsDescriptorIsUsed) {
    VersionFate fate;
    fate.made(kParent);
    fate.leave_by_killed_writer(kParent);
    fate.made(kParent);
    fate.wrote(kChild, kParent, kInside);
    EXPECT_TRUE(fate.has_left(kParent));
    fate.resized(kParent);
    EXPECT_TRUE(fate.has_left(kParent));
    EXPECT_EQ(fate.answering(), std::vector<pid_t>{kChild});
}

TEST(VersionFate, WhatASyncToldIsOverOnceTheFileIsSaved) {
    VersionFate fate;
    fate.wrote(kOther, kOther, kInside);
    fate.tell();
    static_cast<void>(fate.committed(fate.commit_begins()));
    fate.leave_by_killed_writer(kParent);
    EXPECT_FALSE(fate.state(kOther, kOther).was_told);
}

// Its data waited on the disk, and its process was answered, and is gone.
TEST(VersionFate, AWriteOfTheDeadVouchesForNothing) {
    VersionFate fate;
    std::atomic<bool> has_left = false;
    fate.wrote(kParent, kParent, kInside, &has_left);
    has_left = true;
    fate.leave_by_killed_writer(kParent);
    fate.wrote(kParent, kParent, kInside, &has_left);
    fate.wrote(kUnseenProcess, kParent, kInside, &has_left);
    EXPECT_TRUE(fate.left_by_killed_writer());
    EXPECT_TRUE(fate.has_left(kParent));
}

TEST(VersionFate, WhoOpensItAnswersForItThoughItHasTheNumberOfADeadOne) {
    VersionFate fate;
    fate.wrote(kParent, kParent, kInside);
    fate.leave_by_killed_writer(kParent);
    fate.opened(kParent);
    fate.wrote(kChild, kParent, kInside);
    EXPECT_TRUE(fate.state(kParent, kParent).answers_for_it);
    EXPECT_EQ(fate.answering(), (std::vector<pid_t>{kParent, kChild}));
}

TEST(VersionFate, PagesOfAMappingMayBeAnyOpeners) {
    VersionFate fate;
    fate.changed_by_mapping();
    EXPECT_TRUE(fate.state(kParent, kParent).wrote);
    EXPECT_FALSE(fate.state(kChild, kParent).wrote);
    EXPECT_TRUE(fate.state(kUnseenProcess, kUnseenProcess).unseen_wrote);
    EXPECT_FALSE(fate.state(kUnseenProcess, kParent).unseen_wrote);
}

TEST(VersionFate, WhatWasNotWrittenInsideSinceItWasSavedIsALog) {
    VersionFate fate;
    fate.wrote(kParent, kParent, kEnd);
    EXPECT_TRUE(fate.state(kParent, kParent).only_appended);
    fate.committed(fate.commit_begins());
    EXPECT_TRUE(fate.state(kParent, kParent).only_appended);
    fate.wrote(kParent, kParent, kInside);
    EXPECT_FALSE(fate.state(kParent, kParent).only_appended);
    const auto begun = fate.commit_begins();
    fate.wrote(kParent, kParent, kEnd);
    EXPECT_FALSE(fate.state(kParent, kParent).only_appended);
    fate.committed(begun);
    EXPECT_TRUE(fate.state(kParent, kParent).only_appended);
    fate.changed_by_mapping();
    EXPECT_FALSE(fate.state(kParent, kParent).only_appended);
}

TEST(VersionFate, WhoSetsASizeIsAtWorkUntilItIsSaved) {
    VersionFate fate;
    fate.made(kParent);
    fate.resized(kChild);
    EXPECT_EQ(fate.state(kParent, kParent).other_writers, std::vector<pid_t>{kChild});
    EXPECT_TRUE(fate.state(kChild, kChild).other_writers.empty());
    EXPECT_FALSE(fate.state(kParent, kParent).written);
    fate.committed(fate.commit_begins());
    EXPECT_TRUE(fate.state(kParent, kParent).other_writers.empty());
}

TEST(VersionFate, MoreWritersThanAreRememberedAreAllWriters) {
    VersionFate fate;
    for (pid_t process = 1; process <= 1000; ++process) {
        fate.wrote(process, process, kInside);
    }
    EXPECT_TRUE(fate.state(1, 1).wrote);
    EXPECT_TRUE(fate.state(1000, 1000).wrote);
    EXPECT_LE(fate.state(1, 1).other_writers.size(), 128U);
}

// As of a file that a server keeps open.
TEST(VersionFate, ThoseThatAreSavedMakeRoomForOthers) {
    VersionFate fate;
    for (pid_t process = 1; process <= 1000; ++process) {
        fate.wrote(process, process, kInside);
        fate.committed(fate.commit_begins());
    }
    fate.wrote(kOther, kOther, kInside);
    EXPECT_TRUE(fate.state(kOther, kOther).wrote);
    EXPECT_FALSE(fate.state(kParent, kParent).wrote);
    EXPECT_FALSE(fate.state(kParent, kParent).answers_for_it);
    EXPECT_EQ(fate.answering(), std::vector<pid_t>{kOther});
}

TEST(VersionFate, WritersUnseenAreNotedAsSuch) {
    VersionFate fate;
    fate.wrote(kUnseenProcess, kUnseenProcess, kInside);
    EXPECT_TRUE(fate.state(kParent, kParent).unseen_wrote);
    EXPECT_FALSE(fate.state(kParent, kParent).wrote);
    EXPECT_TRUE(fate.state(kUnseenProcess, kUnseenProcess).wrote);
    EXPECT_TRUE(fate.state(kParent, kParent).other_writers.empty());
}

class NotedChangeTest : public ::testing::Test {
protected:
    VersionFate fate;
    NotedChange change{fate, [this] { fate.wrote(kParent, kParent, kInside); }};

    [[nodiscard]] bool unsaved() const { return fate.state(kParent, kParent).unsaved; }
};

TEST_F(NotedChangeTest, WhatWasHandedOverBeforeACommitIsSavedByIt) {
    EXPECT_TRUE(unsaved());
    change.settle();
    fate.committed(fate.commit_begins());
    EXPECT_FALSE(unsaved());
}

TEST_F(NotedChangeTest, WhatWasHandedOverAfterACommitBeganIsNotSavedByIt) {
    const VersionFate::Generation begun = fate.commit_begins();
    change.settle();
    fate.committed(begun);
    EXPECT_TRUE(unsaved());
}

// The thread that hands it over may still be busy when its caller has its answer, and closes.
TEST_F(NotedChangeTest, ACommitThatBeginsAfterTheAnswerSavesIt) {
    change.settle();
    const VersionFate::Generation begun = fate.commit_begins();
    change.settle();
    fate.committed(begun);
    EXPECT_FALSE(unsaved());
}

// A rename that begins then finds that the version is left, and gives the file no other name.
TEST(StepsUnderWay, OneThatBeginsComesBehindWhatIsDoneWhileThereIsNone) {
    WrittenVersion version(0);
    std::future<bool> found_left;
    EXPECT_TRUE(version.renames.if_none([&] {
        found_left = std::async(std::launch::async,
                                [&] { return version.renames.begin() && version.fate.left_by_killed_writer(); });
        EXPECT_EQ(found_left.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
        version.fate.leave_by_killed_writer(kParent);
    }));
    EXPECT_TRUE(found_left.get());
    EXPECT_FALSE(version.renames.if_none([] { ADD_FAILURE() << "a rename is under way"; }));
    version.renames.end();
    EXPECT_TRUE(version.renames.if_none([] {}));
}

}  // namespace
}  // namespace ckptfs::fs
