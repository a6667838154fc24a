// SPDX-License-Identifier: Apache-2.0
// What a FLUSH means for the file that is closed: a pure decision.
//
// FLUSH comes for every close() of any duplicate of a descriptor, in any process that inherited it, and from the exit
// of a process, killed or not. Only some of them are the moment at which the file is whole:
//   - dd and shells duplicate a descriptor and close the original before the first byte is written;
//   - numpy closes a duplicate after each array and goes on writing;
//   - a forked worker that merely inherited the descriptor exits, or is killed, long before its parent is done;
//   - a writer that is killed closes everything, and must not publish half a file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "ckptfs/processes.h"

namespace ckptfs {

struct CloseFacts {
    // The process that closes; empty when it cannot be seen (another PID namespace, already gone).
    std::optional<pid_t> closing_process;
    ExitState exit_state = ExitState::kUnknown;
    // The process that opened the handle, and the one that wrote through it last (0: none).
    pid_t opener = 0;
    pid_t last_writer = 0;
    // Writable descriptors of this inode left in the closing process, and in the opener where that is another one.
    std::optional<int> descriptors_left;
    std::optional<int> opener_descriptors;
    // Some other process, known or not, still holds a writable descriptor. Looked up only for a killed writer.
    bool held_elsewhere = false;
    // A log or another file that is worth having although its writer was killed.
    bool keep_on_kill = false;
};

enum class CloseAction : std::uint8_t {
    kCommit,
    // Not the end, or not to be told here: report a kept error, else succeed. RELEASE commits what is left.
    kWait,
    // The writer was killed in the middle, but others hold the file and may write on. If nobody does, RELEASE must not
    // publish it.
    kWaitForASurvivor,
    // The writer was killed in the middle: what was committed before stays, this is not published.
    kAbort,
};

CloseAction decide_close(const CloseFacts& facts);

}  // namespace ckptfs
