// SPDX-License-Identifier: Apache-2.0
#include "fs/files/close_rule.h"

#include <gtest/gtest.h>

namespace ckptfs::fs {
namespace {

constexpr pid_t kOpener = 100;
constexpr pid_t kChild = 200;

constexpr CloseDecision kCommits{CloseAction::kCommit, false};
constexpr CloseDecision kWaits{CloseAction::kWait, false};
constexpr CloseDecision kLeaves{CloseAction::kLeave, false};
constexpr CloseDecision kAborts{CloseAction::kAbort, false};
constexpr CloseDecision kAbortsAndTells{CloseAction::kAbort, true};

// One that made the file, wrote it and closes its last descriptor.
CloseFacts writer(pid_t process) {
    CloseFacts facts;
    facts.closing_process = process;
    facts.exit_state = ExitState::kRunning;
    facts.opener = kOpener;
    facts.version.unsaved = facts.version.written = facts.version.wrote = facts.version.answers_for_it = true;
    facts.descriptors_left = 0;
    return facts;
}

// One that holds what another wrote.
CloseFacts bystander(pid_t process) {
    CloseFacts facts = writer(process);
    facts.version.wrote = facts.version.answers_for_it = false;
    facts.version.other_writers = {300};
    return facts;
}

CloseFacts killed(CloseFacts facts) {
    facts.exit_state = ExitState::kKilledBySignal;
    return facts;
}

TEST(CloseRule, TheLastDescriptorOfAWriterCommits) {
    EXPECT_EQ(decide_close(writer(kOpener)), kCommits);
}

TEST(CloseRule, ADuplicateThatIsLeftMeansMoreMayCome) {
    CloseFacts facts = writer(kOpener);
    facts.descriptors_left = 1;
    EXPECT_EQ(decide_close(facts), kWaits);
}

TEST(CloseRule, WhatIsSavedIsNotPublishedAgain) {
    CloseFacts facts = writer(kOpener);
    facts.version = VersionState{};
    EXPECT_EQ(decide_close(facts), kWaits);
    EXPECT_EQ(decide_close(killed(facts)), kWaits);
}

TEST(CloseRule, AnInheritorThatNeverWroteDoesNotPublish) {
    CloseFacts facts = bystander(kChild);
    facts.opener_descriptors = 1;
    EXPECT_FALSE(asks_who_inherited_it(facts));
    EXPECT_FALSE(asks_who_is_at_work(facts));
    EXPECT_EQ(decide_close(facts), kWaits);
}

TEST(CloseRule, TheLastThatHasWhatTheOpenerLeftCommits) {
    CloseFacts facts = bystander(kChild);
    facts.opener_descriptors = 0;
    EXPECT_TRUE(asks_who_inherited_it(facts));
    EXPECT_EQ(decide_close(facts), kCommits);
    facts.held_elsewhere = true;
    EXPECT_EQ(decide_close(facts), kWaits);
}

TEST(CloseRule, OneThatMayBeMappedIsLeftToItsRelease) {
    CloseFacts facts = bystander(kChild);
    facts.version.mapped = true;
    EXPECT_EQ(decide_close(facts), kWaits);
}

TEST(CloseRule, AnInheritorThatWroteCommitsOnceTheOpenerIsDone) {
    CloseFacts facts = writer(kChild);
    facts.opener_descriptors = 1;
    EXPECT_EQ(decide_close(facts), kWaits);
    facts.opener_descriptors = 0;
    EXPECT_EQ(decide_close(facts), kCommits);
}

TEST(CloseRule, AnOpenerThatNeverWroteLeavesTheFileToWhoIsAtWork) {
    CloseFacts facts = bystander(kOpener);
    EXPECT_TRUE(asks_who_is_at_work(facts));
    EXPECT_EQ(decide_close(facts), kCommits);
    facts.others_at_work = true;
    EXPECT_EQ(decide_close(facts), kWaits);
}

TEST(CloseRule, AnOrdinaryExitCommitsWhatTheProcessLeftOpen) {
    CloseFacts facts = writer(kOpener);
    facts.exit_state = ExitState::kExiting;
    facts.descriptors_left.reset();
    EXPECT_EQ(decide_close(facts), kCommits);
}

TEST(CloseRule, AKilledWriterPublishesNothing) {
    EXPECT_EQ(decide_close(killed(writer(kOpener))), kAborts);
    EXPECT_EQ(decide_close(killed(writer(kChild))), kAborts);
}

TEST(CloseRule, AKilledHolderThatDidNotWriteDoesNoHarm) {
    for (const pid_t process : {kChild, kOpener}) {
        CloseFacts facts = killed(bystander(process));
        EXPECT_TRUE(asks_who_holds_it(facts));
        facts.held_elsewhere = true;
        EXPECT_EQ(decide_close(facts), kWaits);
        // The last that holds it: nobody else goes on with what was written, or made for it.
        facts.held_elsewhere = false;
        EXPECT_EQ(decide_close(facts), kAborts);
    }
}

TEST(CloseRule, AKilledWriterWhoseFileOthersHoldLeavesItHalf) {
    CloseFacts facts = killed(writer(kOpener));
    EXPECT_TRUE(asks_who_holds_it(facts));
    facts.held_elsewhere = true;
    EXPECT_EQ(decide_close(facts), kLeaves);
    facts.version.unsaved = facts.version.written = facts.version.wrote = false;
    EXPECT_EQ(decide_close(facts), kWaits);
}

TEST(CloseRule, AKilledOneOfThoseThatOnlyTruncatedGivesWayToTheOthers) {
    CloseFacts facts = killed(writer(kOpener));
    facts.version.written = facts.version.wrote = false;
    facts.version.made = facts.version.others_made = true;
    const CloseDecision gives_way{CloseAction::kGiveWay, false};
    EXPECT_EQ(decide_close(facts), kAborts) << "the others are gone";
    facts.version.unseen_made = true;
    EXPECT_EQ(decide_close(facts), gives_way) << "one has closed it, maybe";
    facts.version.unseen_made = false;
    facts.held_elsewhere = true;
    EXPECT_EQ(decide_close(facts), gives_way);
    facts.version.written = true;
    EXPECT_EQ(decide_close(facts), kLeaves);
    facts.version.written = facts.version.others_made = facts.held_elsewhere = false;
    EXPECT_EQ(decide_close(facts), kAborts);
}

TEST(CloseRule, ATruncationOfWhatWasSavedEndsWithItsProcessWhereOthersHoldTheFile) {
    CloseFacts facts = killed(writer(kOpener));
    facts.version.written = facts.version.wrote = false;
    facts.version.made = facts.version.only_truncated_again = true;
    EXPECT_EQ(decide_close(facts), kAborts);
    facts.held_elsewhere = true;
    const CloseDecision gives_way{CloseAction::kGiveWay, false};
    EXPECT_EQ(decide_close(facts), gives_way);
}

TEST(CloseRule, WhatAKilledWriterLeftIsNotPublishedByOthers) {
    CloseFacts facts = bystander(kOpener);
    facts.version.left_by_killed_writer = true;
    EXPECT_TRUE(asks_who_holds_it(facts));
    EXPECT_EQ(decide_close(facts), kAborts);
    facts.held_elsewhere = true;
    EXPECT_EQ(decide_close(facts), kWaits);
}

TEST(CloseRule, WhoWroteBeforeTheDeathIsTold) {
    CloseFacts facts = writer(kOpener);
    facts.version.left_by_killed_writer = true;
    EXPECT_EQ(decide_close(facts), kAbortsAndTells);
    facts.held_elsewhere = true;
    EXPECT_EQ(decide_close(facts), (CloseDecision{CloseAction::kWait, true}));
}

TEST(CloseRule, LogsOfAKilledWriterArePublished) {
    CloseFacts named = killed(writer(kOpener));
    named.has_log_name = true;
    EXPECT_EQ(decide_close(named), kCommits);
    CloseFacts appended = killed(writer(kOpener));
    appended.version.only_appended = true;
    EXPECT_EQ(decide_close(appended), kCommits);
    appended.held_elsewhere = true;
    EXPECT_EQ(decide_close(appended), kWaits);
}

// Appended to, cut to be written anew, and killed: what is left is not what was only appended to.
TEST(CloseRule, WhatAKilledWriterHasCutIsPublishedOfALogOnly) {
    CloseFacts facts = killed(writer(kOpener));
    facts.version.only_appended = facts.version.resized = true;
    EXPECT_EQ(decide_close(facts), kAborts);
    facts.has_log_name = true;
    EXPECT_EQ(decide_close(facts), kCommits);
}

TEST(CloseRule, ALogThatWasTruncatedAndNotWrittenKeepsItsVersion) {
    CloseFacts facts = killed(writer(kOpener));
    facts.has_log_name = true;
    facts.version.written = facts.version.wrote = false;
    EXPECT_EQ(decide_close(facts), kAborts);
}

CloseFacts unseen() {
    CloseFacts facts = writer(kOpener);
    facts.closing_process.reset();
    facts.exit_state = ExitState::kUnknown;
    facts.opener = kUnseenProcess;
    facts.version.unseen_wrote = true;
    facts.descriptors_left.reset();
    return facts;
}

TEST(CloseRule, EachCloseOfAWriterUnseenCommits) {
    EXPECT_EQ(decide_close(unseen()), kCommits);
    EXPECT_EQ(decide_release(unseen().version), ReleaseAction::kAbort);
    CloseFacts early = unseen();
    early.version.written = early.version.wrote = early.version.unseen_wrote = false;
    EXPECT_EQ(decide_close(early), kWaits);
    EXPECT_EQ(decide_release(early.version), ReleaseAction::kCommit);
}

TEST(CloseRule, WhoIsKilledInItsOpenPublishesNothing) {
    VersionState made;
    made.unsaved = made.made = true;
    EXPECT_EQ(decide_release(made, true), ReleaseAction::kAbort);
    EXPECT_EQ(decide_release(made, false), ReleaseAction::kCommit);
    VersionState gave_way = made;
    gave_way.gave_way = true;
    EXPECT_EQ(decide_release(gave_way), ReleaseAction::kAbort);
    // What others wrote and closed is theirs.
    made.written = true;
    EXPECT_EQ(decide_release(made, true), ReleaseAction::kCommit);
}

TEST(CloseRule, AMappingWithoutADescriptorIsPublishedWhereItsProcessGoesOnOrEndsByItself) {
    VersionState mapped;
    mapped.unsaved = mapped.written = mapped.mapped = true;
    EXPECT_EQ(decide_release(mapped, false, ExitState::kRunning), ReleaseAction::kCommit);
    EXPECT_EQ(decide_release(mapped, false, ExitState::kExiting), ReleaseAction::kCommit);
    EXPECT_EQ(decide_release(mapped, false, ExitState::kKilledBySignal), ReleaseAction::kAbort);
    EXPECT_EQ(decide_release(mapped, false, ExitState::kUnknown), ReleaseAction::kAbort);
    mapped.mapped = false;
    EXPECT_EQ(decide_release(mapped, false, ExitState::kUnknown), ReleaseAction::kCommit);
}

TEST(CloseRule, AnInterruptedCloseUnseenIsThatOfAKilledProcess) {
    CloseFacts facts = unseen();
    facts.interrupted = true;
    EXPECT_EQ(decide_close(facts), kAbortsAndTells);
    facts.has_log_name = true;
    EXPECT_EQ(decide_close(facts), kCommits);
    // Where it can be seen, a signal is a signal.
    CloseFacts seen = writer(kOpener);
    seen.interrupted = true;
    EXPECT_EQ(decide_close(seen), kCommits);
}

TEST(CloseRule, WhoseDescriptorsCannotBeSeenIsTakenForDone) {
    CloseFacts facts = writer(kOpener);
    facts.descriptors_left.reset();
    EXPECT_EQ(decide_close(facts), kCommits);
}

TEST(CloseRule, OfWhatWasCutOffLogsAreKept) {
    VersionState version;
    version.unsaved = version.written = true;
    EXPECT_EQ(decide_cut_off(version, false), ReleaseAction::kAbort);
    EXPECT_EQ(decide_cut_off(version, true), ReleaseAction::kCommit);
    version.left_by_killed_writer = true;
    EXPECT_EQ(decide_cut_off(version, true), ReleaseAction::kAbort);
    version.left_by_killed_writer = false;
    version.only_appended = true;
    EXPECT_EQ(decide_cut_off(version, false), ReleaseAction::kCommit);
    version.written = false;
    EXPECT_EQ(decide_cut_off(version, true), ReleaseAction::kAbort) << "truncated, and not written since";
}

}  // namespace
}  // namespace ckptfs::fs
