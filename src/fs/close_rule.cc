// SPDX-License-Identifier: Apache-2.0
#include "fs/close_rule.h"

namespace ckptfs {

namespace {

CloseAction decide_killed(const CloseFacts& facts) {
    const pid_t process = *facts.closing_process;
    const bool is_the_writer = process == facts.opener || process == facts.last_writer;
    if (!is_the_writer) {
        return CloseAction::kWait;
    }
    if (facts.keep_on_kill) {
        return facts.held_elsewhere ? CloseAction::kWait : CloseAction::kCommit;
    }
    return facts.held_elsewhere ? CloseAction::kWaitForASurvivor : CloseAction::kAbort;
}

}  // namespace

CloseAction decide_close(const CloseFacts& facts) {
    if (!facts.closing_process) {
        return CloseAction::kWait;
    }
    if (facts.exit_state == ExitState::kKilledBySignal) {
        return decide_killed(facts);
    }
    // A process in exit has given up its descriptor table already: what it closes, it closes for good.
    const int left = facts.exit_state == ExitState::kExiting ? 0 : facts.descriptors_left.value_or(1);
    if (left > 0) {
        return CloseAction::kWait;
    }
    if (*facts.closing_process == facts.opener) {
        return CloseAction::kCommit;
    }
    const bool opener_is_done = facts.opener_descriptors.value_or(0) == 0;
    const bool has_written = *facts.closing_process == facts.last_writer;
    return opener_is_done && has_written ? CloseAction::kCommit : CloseAction::kWait;
}

}  // namespace ckptfs
