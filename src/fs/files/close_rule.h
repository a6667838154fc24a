// SPDX-License-Identifier: Apache-2.0
// What a FLUSH means for the file that is closed, and what the last RELEASE does: pure decisions, by the rules in
// version_fate.h.
//
// FLUSH comes for every close() of any duplicate of a descriptor, in any process that inherited it, and from the exit
// of a process, killed or not. Only some of them are the moment at which the file is whole:
//   - dd and shells duplicate a descriptor and close the original before the first byte is written;
//   - numpy closes a duplicate after each array and goes on writing;
//   - a forked worker that merely inherited the descriptor exits, or is killed, long before its parent is done;
//   - a parent closes its copy as soon as its child, which writes the file, has begun;
//   - a writer that is killed closes everything, and must not publish half a file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "ckptfs/processes.h"
#include "fs/state/version_fate.h"

namespace ckptfs::fs {

struct CloseFacts {
    // The process that closes; empty when it cannot be seen (another PID namespace, already gone).
    std::optional<pid_t> closing_process;
    ExitState exit_state = ExitState::kUnknown;
    // A signal interrupted the FLUSH. Considered only if /proc does not show how the process ends: a killed process
    // still has its signal pending when it closes what it has open.
    bool interrupted = false;
    // The process that opened the handle; kUnseenProcess where it was not seen.
    pid_t opener = kUnseenProcess;
    VersionState version;
    // Writable descriptors of this inode left in the closing process, and in the opener if that is another process.
    std::optional<int> descriptors_left;
    std::optional<int> opener_descriptors;
    // Another process is at work on the version: looked up only where asks_who_is_at_work().
    bool others_at_work = false;
    // Another process still holds the file and can write. Looked up only where asks_who_holds_it(), by handles and in
    // /proc, or asks_who_inherited_it(), in /proc only: for processes that have this inode.
    bool held_elsewhere = false;
    // The file has the name of a log, or of another file that is kept although its writer was killed (--keep-on-kill).
    bool has_log_name = false;
};

enum class CloseAction : std::uint8_t {
    kCommit,
    // Not the end of writing, or not known to be: the close succeeds unless `is_lost`, and the last RELEASE decides
    // about what is left.
    kWait,
    // The process was killed before anything was written, and others hold the file. Either another process truncated
    // it, too, and answers for it, or all was saved before this one truncated it.
    kGiveWay,
    // The writer was killed in the middle, but others hold the file and may write on.
    kLeave,
    // The writer was killed in the middle: what was committed before stays, this is not published.
    kAbort,
};

struct CloseDecision {
    CloseAction action = CloseAction::kWait;
    // What the closing process wrote will not be published: its close fails.
    bool is_lost = false;

    friend bool operator==(const CloseDecision&, const CloseDecision&) = default;
};

// Whether what a killed process left is published as far as it was written: of a log, or of a file that was only
// appended to. False if the file was truncated and not written since, or if a file that is no log was resized: the
// version before it is worth more.
[[nodiscard]] bool is_kept_when_killed(const VersionState& version, bool has_log_name);

[[nodiscard]] bool asks_who_holds_it(const CloseFacts& facts);
[[nodiscard]] bool asks_who_inherited_it(const CloseFacts& facts);
[[nodiscard]] bool asks_who_is_at_work(const CloseFacts& facts);

[[nodiscard]] CloseDecision decide_close(const CloseFacts& facts);

// Whether /proc shows too little: not how the process ends, or, of a running process, not which descriptors it holds.
[[nodiscard]] bool closes_unseen(const CloseFacts& facts);

enum class ReleaseAction : std::uint8_t { kCommit, kAbort };

// Decides, at the last RELEASE, about what no close has committed. `is_disowned`: the process was killed in its
// open(2), and no FLUSH has come. `mapper`: how the process ends that closed the file last, or has opened it. For a
// mapping this shows whether all of it was written: a killed process stops midway, and of one that is gone nothing is
// known.
[[nodiscard]] ReleaseAction decide_release(const VersionState& version, bool is_disowned = false,
                                           ExitState mapper = ExitState::kRunning);

// Decides where the connection to the kernel ended before the RELEASE came, as with `umount -f`: no process can go on
// with the file, and whether one was done with it is not known.
[[nodiscard]] ReleaseAction decide_cut_off(const VersionState& version, bool has_log_name);

}  // namespace ckptfs::fs
