// SPDX-License-Identifier: Apache-2.0
#include "fs/files/file_closes.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "base/globs.h"

namespace ckptfs::fs {

namespace {

// The signal that kills a process is pending when it closes its files, so that the kernel sends the interrupt right
// behind the FLUSH. How long that takes was not measured: chosen well above a wakeup. Waited for only where /proc does
// not tell.
constexpr Milliseconds kInterruptFollows{10};
// close(2) takes the descriptor from its process before it sends the FLUSH. Chosen in the same way.
constexpr Milliseconds kFlushFollows{10};

}  // namespace

// --- close

struct FileCloses::Closing {
    HandlePtr handle;
    std::function<bool()> interrupted;
    std::function<void()> settled;
    CloseFacts facts;
    Reply<void> reply;
    // This close counts in the version's `saves`.
    bool saves = false;
    // This close has waited once for others that were about to close.
    bool has_waited_for_others = false;
    SteadyTime begun{};

    void save_ends() {
        if (std::exchange(saves, false)) {
            handle->version->saves.end();
        }
    }
};

void FileCloses::flush(HandleId id, const Caller& caller, Reply<void> reply) {
    const HandlePtr handle = handles_.find(id);
    if (handle == nullptr) {
        reply(bad_handle());
        return;
    }
    if (handle->writer == nullptr || handle->node->removed) {
        reply({});
        return;
    }
    if (handle->was_refused) {
        reply(refuse_given_up(*handle));
        if (caller.settled != nullptr) {
            caller.settled();
        }
        return;
    }
    if (std::optional<Error> failed = handle->writer->failed()) {
        failures_.answer_failed(*handle, *failed, [reply = std::move(reply), failed] { reply(failure(*failed)); });
        if (caller.settled != nullptr) {
            caller.settled();
        }
        return;
    }
    // The process has to be looked up while it waits for the answer. To look up what it and others hold can take long,
    // and is done elsewhere.
    const auto closing = std::make_shared<Closing>();
    closing->handle = handle;
    closing->begun = state_.env.clock.now();
    closing->interrupted = caller.interrupted;
    closing->settled = caller.settled;
    closing->facts.closing_process = state_.env.processes.thread_group(caller.thread);
    closing->facts.exit_state = state_.env.processes.exit_state(caller.thread);
    closing->facts.opener = handle->opener;
    if (closing->facts.closing_process && closing->facts.exit_state == ExitState::kRunning) {
        handle->last_closer = *closing->facts.closing_process;
    }
    closing->reply = std::move(reply);
    static_cast<void>(handle->version->closes.begin());
    // A process that is gone before /proc tells may have been killed.
    const ExitState end = closing->facts.exit_state;
    closing->saves = (end == ExitState::kRunning || end == ExitState::kExiting) && handle->version->saves.begin();
    const auto decide = [this, closing] { decide_later(closing); };
    if (closing->interrupted != nullptr && closing->facts.exit_state == ExitState::kUnknown) {
        waits_.after(kInterruptFollows, decide);
    } else {
        decide();
    }
}

bool FileCloses::is_heard(HandleId id, const Caller& caller) const {
    const HandlePtr handle = handles_.find(id);
    const ExitState end = state_.env.processes.exit_state(caller.thread);
    const std::optional<pid_t> process = state_.env.processes.thread_group(caller.thread);
    if (handle == nullptr || handle->writer == nullptr || end == ExitState::kUnknown || !process) {
        return handle != nullptr && handle->writer != nullptr;
    }
    return end == ExitState::kRunning &&
           (*process == handle->opener || handle->version->fate.state(*process, handle->opener).wrote);
}

void FileCloses::decide_later(const std::shared_ptr<Closing>& closing) {
    inspections_->post([this, closing] { decide_and_close(closing); });
}

void FileCloses::complete_facts(const Closing& closing, CloseFacts& facts) const {
    const Handle& handle = *closing.handle;
    const ProcessInspector& processes = state_.env.processes;
    std::uint64_t inode = 0;
    bool other_handles = false;
    bool shares_inode = false;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        inode = handle.inode;
        other_handles = handle.node->writable_handles > 1;
        shares_inode = handle.node->shares_inode;
        facts.has_log_name = matches_any(handle.node->name, state_.env.write.config.keep_on_kill);
    }
    const pid_t process = facts.closing_process.value_or(kUnseenProcess);
    // A descriptor of the file that was opened otherwise, and inherited from another process, is no duplicate of this.
    const int access = handle.flags & O_ACCMODE;
    facts.version = handle.version->fate.state(process, handle.opener);
    facts.interrupted = closing.interrupted != nullptr && closing.interrupted();
    if (facts.closing_process && facts.version.unsaved && facts.exit_state == ExitState::kRunning) {
        facts.descriptors_left = processes.writable_descriptors(process, inode, access);
        if (facts.descriptors_left.value_or(0) > 0) {
            // Descriptors of other handles are not duplicates of this one.
            facts.descriptors_left = std::max(0, *facts.descriptors_left - handles_.count_others(handle, process));
        }
    }
    if (facts.version.unsaved && facts.opener != kUnseenProcess && facts.opener != process) {
        facts.opener_descriptors = processes.writable_descriptors(facts.opener, inode, access);
        if (facts.opener_descriptors.value_or(0) > 0) {
            facts.opener_descriptors =
                std::max(0, *facts.opener_descriptors - handles_.count_others(handle, facts.opener));
        }
    }
    if (asks_who_holds_it(facts)) {
        facts.held_elsewhere = other_handles || processes.written_by_others(inode, process);
    } else if (asks_who_inherited_it(facts)) {
        // Handles that this process has closed just before may not be released yet.
        facts.held_elsewhere = processes.written_by_others(inode, process);
    }
    if (asks_who_is_at_work(facts)) {
        // Handles that truncated an open file have this version behind the inode of the earlier one.
        std::set<std::uint64_t> inodes{inode};
        for (const HandlePtr& each : shares_inode ? handles_.all() : std::vector<HandlePtr>()) {
            if (each->node == handle.node) {
                inodes.insert(each->inode);
            }
        }
        const auto is_at_work = [&](pid_t writer) {
            return std::any_of(inodes.begin(), inodes.end(), [&](std::uint64_t each) {
                return processes.writable_descriptors(writer, each, ProcessInspector::kAnyAccess).value_or(0) > 0;
            });
        };
        facts.others_at_work =
            (other_handles && facts.version.unseen_wrote) ||
            std::any_of(facts.version.other_writers.begin(), facts.version.other_writers.end(), is_at_work) ||
            processes.handed_down(inode, process);
    }
}

// Whether this is the death of a process that wrote nothing, and seems to be the last that holds the file, while
// another may be closing it as usual.
bool FileCloses::waits_for_others(const Closing& closing, const CloseFacts& facts) {
    return !closing.saves && !facts.version.answers_for_it &&
           (!closing.has_waited_for_others || closing.handle->version->saves.any());
}

// True if the close is decided again later: to give a version up needs facts that still hold, and they took a while.
bool FileCloses::must_look_again(const std::shared_ptr<Closing>& closing, const CloseFacts& facts,
                                 const CloseDecision& decision) {
    if (decision.action == CloseAction::kGiveWay) {
        const bool gives_way = closing->handle->version->fate.gives_way(facts.closing_process.value_or(kUnseenProcess));
        if (!gives_way) {
            decide_later(closing);
        }
        return !gives_way;
    }
    const bool gives_up = decision.action == CloseAction::kAbort;
    if (!gives_up && decision.action != CloseAction::kLeave) {
        return false;
    }
    WrittenVersion& version = *closing->handle->version;
    const auto decide = [this, closing] { decide_later(closing); };
    const auto answer_killed = [&] {
        if (!decision.is_lost) {
            // A caller that was killed must not wait for the store.
            std::exchange(closing->reply, [](const Status& /*answered*/) {})({});
        }
    };
    if (gives_up && waits_for_others(*closing, facts)) {
        answer_killed();
        if (!std::exchange(closing->has_waited_for_others, true)) {
            waits_.after(kFlushFollows, decide);
        } else {
            version.saves.when_none(decide);
        }
        return true;
    }
    if (version.renames.any()) {
        answer_killed();
        version.renames.when_none(decide);
        return true;
    }
    if (version.fate.state(facts.closing_process.value_or(kUnseenProcess), facts.opener) != facts.version) {
        decide();
        return true;
    }
    const pid_t killed = facts.closing_process.value_or(kUnseenProcess);
    // A version that others hold may be written on, and renamed then; one that is given up may not.
    const bool may_end = gives_up ? version.renames.shut_out()
                                  : version.renames.if_none([&] { version.fate.leave_by_killed_writer(killed); });
    if (!may_end) {
        answer_killed();
        version.renames.when_none(decide);
        return true;
    }
    return false;
}

void FileCloses::decide_and_close(const std::shared_ptr<Closing>& closing) {
    CloseFacts facts = closing->facts;
    complete_facts(*closing, facts);
    const HandlePtr handle = closing->handle;
    // The file may have failed while this close waited.
    const bool is_over = closing->has_waited_for_others && handle->writer->failed();
    CloseDecision decision = is_over ? CloseDecision{CloseAction::kWait} : decide_close(facts);
    const pid_t process = facts.closing_process.value_or(kUnseenProcess);
    // Processes that are being killed close their descriptors one after another.
    if (decision.action == CloseAction::kCommit && commits_.is_left_half(*handle->node, *handle->version, process)) {
        if (state_.env.clock.now() - closing->begun < state_.env.write.retry_for) {
            if (facts.exit_state == ExitState::kRunning && closing->settled != nullptr) {
                // It has called close(2), whatever becomes of it now.
                std::exchange(closing->settled, nullptr)();
            }
            waits_.after(kFlushFollows, [this, closing] { decide_later(closing); });
            return;
        }
        decision = {CloseAction::kWait, facts.version.wrote || facts.version.made};
    }
    if (must_look_again(closing, facts, decision)) {
        return;
    }
    if (decision.action == CloseAction::kWait && facts.version.made && closes_unseen(facts)) {
        handle->version->fate.closed_unseen(process);
    }
    const Reply<void> reply = std::move(closing->reply);
    const auto settle = [&handle, &closing] {
        handle->version->closes.end();
        if (closing->settled != nullptr) {
            closing->settled();
        }
    };
    const auto answer = [reply, handle, is_lost = decision.is_lost] {
        is_lost ? reply(failure(lost_error(*handle->writer))) : reply({});
    };
    switch (decision.action) {
        case CloseAction::kCommit:
            commits_.commit_in_order(handle->node, handle->writer,
                                     {facts.version.written ? CommitReason::kClose : CommitReason::kMade, process},
                                     [this, handle, closing, reply](Status committed) {
                                         closing->save_ends();
                                         // What is written to a removed file is never published.
                                         if (committed || handle->node->removed) {
                                             reply({});
                                             return;
                                         }
                                         failures_.answer_failed(*handle, committed.error(),
                                                                 [reply, committed] { reply(committed); });
                                     });
            settle();
            return;
        case CloseAction::kGiveWay:
        case CloseAction::kLeave:
        case CloseAction::kWait:
            settle();
            closing->save_ends();
            answer();
            return;
        case CloseAction::kAbort:
            if (decision.is_lost) {
                failures_.abort_killed(*handle, answer);
                settle();
            } else {
                // A caller that was killed gets no answer, and must not wait for the store.
                failures_.abort_killed(*handle, [] {});
                settle();
                answer();
            }
            closing->save_ends();
            return;
    }
}

// --- fsync

// POSIX: fsync flushes what the file holds, by any writer and any descriptor.
FileCloses::Written FileCloses::written_behind(const Handle& handle) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    const NodePtr& node = handle.node;
    if (handle.writer != nullptr) {
        return {node, handle.writer};
    }
    // A reader of an earlier version, which is saved, though its writers may have it open yet: the name is written by
    // another node.
    const bool is_saved = node->writer == nullptr || (node->version != nullptr && node->version->is_truncated_away()) ||
                          (!node->writer->dirty() && !node->writer->failed());
    const NodePtr current = is_saved && !node->linked && node->parent != nullptr
                                ? state_.nodes.child(lock, node->parent, node->name)
                                : nullptr;
    return current != nullptr && current->writer != nullptr ? Written{current, current->writer}
                                                            : Written{node, node->writer};
}

void FileCloses::fsync(HandleId id, Reply<void> reply) {
    const HandlePtr handle = handles_.find(id);
    if (handle == nullptr) {
        reply(bad_handle());
        return;
    }
    const Written written = handle->node->removed ? Written{} : written_behind(*handle);
    if (written.writer == nullptr || written.node->removed) {
        reply({});
    } else {
        commits_.commit_in_order(written.node, written.writer, CommitReason::kFsync,
                                 [node = written.node, reply = std::move(reply)](const Status& committed) {
                                     reply(node->removed ? Status() : committed);
                                 });
    }
}

}  // namespace ckptfs::fs
