// SPDX-License-Identifier: Apache-2.0
// What to do about the marker of a rename that may be unfinished: a pure decision.
#pragma once

#include <optional>

#include "ckptfs/clock.h"
#include "fs/objects/directory_marker.h"

namespace ckptfs::fs {

enum class RepairAction : std::uint8_t { kWait, kRollBack, kFinish };

struct RepairFacts {
    // State of the rename's record; empty if there is none.
    std::optional<MarkerState> record;
    // Age of the record, or of the marker if there is no record.
    Milliseconds age{0};
    Milliseconds repair_after{0};
    // Time since a journal said that the rename's process had ended. A copy of the state directory, as in an image of
    // the machine, says so of a process that lives.
    std::optional<Milliseconds> dead_for{};
};

struct RepairDecision {
    RepairAction action = RepairAction::kWait;
    // For kWait: the time until the next look.
    Milliseconds wait{0};
    // What the record becomes when it is taken over.
    MarkerState record = MarkerState::kRollingBack;
};

// How long the requests that a process had sent when it was killed may still take effect; a decided rename only goes
// forward, whichever of them do.
inline constexpr Milliseconds kLastRequests{60'000};

// Heartbeats within `repair_after`: a few may fail.
inline constexpr int kBeatsInTime = 10;

// Time without a heartbeat after which a process that was said to have ended has ended. Its last requests have taken
// effect by then.
[[nodiscard]] Milliseconds believed_dead_after(Milliseconds repair_after);

// A rename that sends a heartbeat is left alone, also if its process was said to have ended before. One that was
// decided goes on to its end, every other one goes back. A record goes last of all, so that a marker without one
// belongs to a rename that went back: a slow process wrote it after it was presumed dead.
[[nodiscard]] RepairDecision decide_repair(const RepairFacts& facts);

}  // namespace ckptfs::fs
