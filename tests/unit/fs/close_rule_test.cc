// SPDX-License-Identifier: Apache-2.0
#include "fs/close_rule.h"

#include <gtest/gtest.h>

namespace ckptfs {
namespace {

constexpr pid_t kOpener = 100;
constexpr pid_t kChild = 200;

CloseFacts closing(pid_t process, int descriptors_left) {
    CloseFacts facts;
    facts.closing_process = process;
    facts.exit_state = ExitState::kRunning;
    facts.opener = kOpener;
    facts.last_writer = kOpener;
    facts.descriptors_left = descriptors_left;
    return facts;
}

CloseFacts killed(pid_t process) {
    CloseFacts facts = closing(process, 0);
    facts.exit_state = ExitState::kKilledBySignal;
    return facts;
}

TEST(CloseRule, LastDescriptorOfTheOpenerCommits) {
    EXPECT_EQ(decide_close(closing(kOpener, 0)), CloseAction::kCommit);
}

TEST(CloseRule, ADuplicateThatIsLeftMeansMoreMayCome) {
    EXPECT_EQ(decide_close(closing(kOpener, 1)), CloseAction::kWait);
}

TEST(CloseRule, UnseenProcessesWaitForRelease) {
    CloseFacts facts = closing(kOpener, 0);
    facts.closing_process.reset();
    EXPECT_EQ(decide_close(facts), CloseAction::kWait);
    facts = closing(kOpener, 0);
    facts.descriptors_left.reset();
    EXPECT_EQ(decide_close(facts), CloseAction::kWait);
}

TEST(CloseRule, AnInheritorThatNeverWroteDoesNotPublish) {
    CloseFacts facts = closing(kChild, 0);
    facts.opener_descriptors = 1;
    EXPECT_EQ(decide_close(facts), CloseAction::kWait);
    facts.opener_descriptors = 0;
    EXPECT_EQ(decide_close(facts), CloseAction::kWait);
}

TEST(CloseRule, AnInheritorThatWroteCommitsOnceTheOpenerIsDone) {
    CloseFacts facts = closing(kChild, 0);
    facts.last_writer = kChild;
    facts.opener_descriptors = 1;
    EXPECT_EQ(decide_close(facts), CloseAction::kWait);
    facts.opener_descriptors = 0;
    EXPECT_EQ(decide_close(facts), CloseAction::kCommit);
}

TEST(CloseRule, AnOrdinaryExitCommitsWhatTheProcessLeftOpen) {
    CloseFacts facts = closing(kOpener, 0);
    facts.exit_state = ExitState::kExiting;
    facts.descriptors_left.reset();
    EXPECT_EQ(decide_close(facts), CloseAction::kCommit);
}

TEST(CloseRule, AKilledWriterPublishesNothing) {
    EXPECT_EQ(decide_close(killed(kOpener)), CloseAction::kAbort);
    CloseFacts wrote = killed(kChild);
    wrote.last_writer = kChild;
    EXPECT_EQ(decide_close(wrote), CloseAction::kAbort);
}

TEST(CloseRule, AKilledInheritorDoesNotHarmTheWriter) {
    EXPECT_EQ(decide_close(killed(kChild)), CloseAction::kWait);
}

TEST(CloseRule, AKilledWriterWhoseFileOthersHoldIsLeftToThem) {
    CloseFacts facts = killed(kOpener);
    facts.held_elsewhere = true;
    EXPECT_EQ(decide_close(facts), CloseAction::kWaitForASurvivor);
    facts.keep_on_kill = true;
    EXPECT_EQ(decide_close(facts), CloseAction::kWait);
}

TEST(CloseRule, LogsOfAKilledWriterArePublished) {
    CloseFacts facts = killed(kOpener);
    facts.keep_on_kill = true;
    EXPECT_EQ(decide_close(facts), CloseAction::kCommit);
}

}  // namespace
}  // namespace ckptfs
