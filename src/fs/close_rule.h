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
#include "fs/version_fate.h"

namespace ckptfs::fs {

struct CloseFacts {
    // The process that closes; empty when it cannot be seen (another PID namespace, already gone).
    std::optional<pid_t> closing_process;
    ExitState exit_state = ExitState::kUnknown;
    // A signal struck it as it closed. Looked at only where /proc does not tell how it ends: of a process that is
    // killed, the signal is still pending when it closes what it has open.
    bool interrupted = false;
    // The process that opened the handle; kUnseenProcess where it was not seen.
    pid_t opener = kUnseenProcess;
    VersionState version;
    // Writable descriptors of this inode left in the closing process, and in the opener where that is another one.
    std::optional<int> descriptors_left;
    std::optional<int> opener_descriptors;
    // Another process is at work on the version: looked up only where asks_who_is_at_work().
    bool others_at_work = false;
    // Some other process, known or not, still holds it and can write: looked up only where asks_who_holds_it() or
    // asks_who_inherited_it(), which asks only for processes that have this inode.
    bool held_elsewhere = false;
    // It has the name of a log, or of another file that is worth having although its writer was killed.
    bool has_log_name = false;
};

enum class CloseAction : std::uint8_t {
    kCommit,
    // Not the end, or not to be told here: report a kept error, else succeed. RELEASE commits what is left.
    kWait,
    // Killed before anything was written, where another process truncated the file too, and answers for it, or where
    // all was saved before it truncated.
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

// As far as it was written. What was truncated and not written since is not worth the version before it, nor is what
// was cut of a file that is no log.
[[nodiscard]] bool is_kept_when_killed(const VersionState& version, bool has_log_name);

[[nodiscard]] bool asks_who_holds_it(const CloseFacts& facts);
[[nodiscard]] bool asks_who_inherited_it(const CloseFacts& facts);
[[nodiscard]] bool asks_who_is_at_work(const CloseFacts& facts);

[[nodiscard]] CloseDecision decide_close(const CloseFacts& facts);

enum class ReleaseAction : std::uint8_t { kCommit, kAbort };

// At the last RELEASE, for what no close has committed. A disowned handle is that of a process which was killed in
// its open(2), and no FLUSH has come before. `opener`: how the process that opened it ends. For a mapping this tells
// whether all of it was written: a killed process stops midway, and of one that is gone nothing is known.
[[nodiscard]] ReleaseAction decide_release(const VersionState& version, bool is_disowned = false,
                                           ExitState opener = ExitState::kRunning);

// Where the connection to the kernel ended before the RELEASE came, as `umount -f` does: no process can go on with the
// file, and whether one was done with it is not known.
[[nodiscard]] ReleaseAction decide_cut_off(const VersionState& version, bool has_log_name);

}  // namespace ckptfs::fs
