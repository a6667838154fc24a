// SPDX-License-Identifier: Apache-2.0
#include "fs/files/close_rule.h"

namespace ckptfs::fs {

namespace {

bool is_killed(const CloseFacts& facts) {
    return facts.closing_process && facts.exit_state == ExitState::kKilledBySignal;
}

// A process in exit has given up its descriptor table already: what it closes, it closes for good.
int descriptors_left(const CloseFacts& facts) {
    return facts.exit_state == ExitState::kExiting ? 0 : facts.descriptors_left.value_or(0);
}

bool is_exiting_unseen(const CloseFacts& facts) {
    return !facts.closing_process || facts.exit_state == ExitState::kUnknown;
}

CloseDecision decide_killed(const CloseFacts& facts, bool is_sure) {
    // The death of a process that only holds the file matters only if it was the last holder: it might have completed
    // what others wrote.
    if (!facts.version.answers_for_it && (facts.held_elsewhere || !facts.version.unsaved)) {
        return {CloseAction::kWait};
    }
    // Those others may be gone without a FLUSH that told so. Of an unseen process it is not known who holds the file,
    // nor whether it has closed it.
    const bool is_held = facts.held_elsewhere || !is_sure || facts.version.unseen_made;
    const bool is_undone = facts.version.only_truncated_again && facts.held_elsewhere;
    if (is_undone || (facts.version.made && facts.version.others_made && !facts.version.written && is_held)) {
        return {CloseAction::kGiveWay};
    }
    if (is_kept_when_killed(facts.version, facts.has_log_name)) {
        return {facts.held_elsewhere ? CloseAction::kWait : CloseAction::kCommit};
    }
    if (facts.held_elsewhere) {
        return {facts.version.unsaved ? CloseAction::kLeave : CloseAction::kWait, !is_sure};
    }
    return {CloseAction::kAbort, !is_sure};
}

CloseDecision decide_left(const CloseFacts& facts) {
    const VersionState& version = facts.version;
    return {facts.held_elsewhere ? CloseAction::kWait : CloseAction::kAbort,
            version.wrote || version.made || version.was_told};
}

}  // namespace

bool is_kept_when_killed(const VersionState& version, bool has_log_name) {
    const bool only_appended = version.only_appended && !version.resized;
    return (has_log_name || only_appended) && (version.written || !version.unsaved);
}

bool asks_who_holds_it(const CloseFacts& facts) {
    return is_killed(facts) ? facts.version.answers_for_it || facts.version.unsaved
                            : facts.version.left_by_killed_writer;
}

bool asks_who_is_at_work(const CloseFacts& facts) {
    return !is_killed(facts) && facts.closing_process && facts.version.unsaved && !facts.version.wrote &&
           *facts.closing_process == facts.opener && descriptors_left(facts) == 0;
}

bool asks_who_inherited_it(const CloseFacts& facts) {
    const VersionState& version = facts.version;
    return !is_killed(facts) && facts.closing_process && facts.opener != kUnseenProcess &&
           *facts.closing_process != facts.opener && facts.opener_descriptors.value_or(0) == 0 &&
           descriptors_left(facts) == 0 && version.unsaved && !version.wrote && !version.mapped &&
           !version.unseen_wrote && !version.left_by_killed_writer;
}

bool closes_unseen(const CloseFacts& facts) {
    return is_exiting_unseen(facts) || (facts.exit_state == ExitState::kRunning && !facts.descriptors_left);
}

CloseDecision decide_close(const CloseFacts& facts) {
    if (is_killed(facts)) {
        return decide_killed(facts, true);
    }
    const VersionState& version = facts.version;
    if (!version.unsaved || descriptors_left(facts) > 0) {
        return {CloseAction::kWait};
    }
    if (version.left_by_killed_writer) {
        return decide_left(facts);
    }
    if (is_exiting_unseen(facts) && facts.interrupted) {
        return decide_killed(facts, false);
    }
    if (closes_unseen(facts)) {
        return {version.wrote ? CloseAction::kCommit : CloseAction::kWait};
    }
    const bool is_opener = *facts.closing_process == facts.opener;
    if (version.wrote) {
        const bool opener_is_done = is_opener || facts.opener_descriptors.value_or(0) == 0;
        return {opener_is_done ? CloseAction::kCommit : CloseAction::kWait};
    }
    if (!is_opener) {
        // Commits if this process is the last holder of what the opener left to others.
        return {asks_who_inherited_it(facts) && !facts.held_elsewhere ? CloseAction::kCommit : CloseAction::kWait};
    }
    return {facts.others_at_work ? CloseAction::kWait : CloseAction::kCommit};
}

ReleaseAction decide_release(const VersionState& version, bool is_disowned, ExitState mapper) {
    const bool is_cut_short = version.mapped && (mapper == ExitState::kKilledBySignal || mapper == ExitState::kUnknown);
    const bool is_lost = version.left_by_killed_writer || version.unseen_wrote || is_cut_short ||
                         (is_disowned && !version.written) ||
                         // Those that it gave way to were about to close the file, and have not.
                         version.gave_way;
    return is_lost ? ReleaseAction::kAbort : ReleaseAction::kCommit;
}

ReleaseAction decide_cut_off(const VersionState& version, bool has_log_name) {
    const bool is_kept = is_kept_when_killed(version, has_log_name) && !version.left_by_killed_writer;
    return is_kept ? ReleaseAction::kCommit : ReleaseAction::kAbort;
}

}  // namespace ckptfs::fs
