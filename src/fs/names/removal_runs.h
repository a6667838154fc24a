// SPDX-License-Identifier: Apache-2.0
// Whether a program removes name after name (rm -r), so that they may go in batches: a pure decision.
//
// A run is 16 removals, in one directory or in neighbouring ones, between which the program took less than a second
// in all. The time that the store takes does not count: a slow store is what batches are for.
//
// Threads: guarded by its owner.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "ckptfs/clock.h"
#include "fs/file_operations.h"

namespace ckptfs::fs {

class RemovalRuns {
public:
    // A name in `directory` is about to be removed; `parent` is the directory's own parent, 0 for the top. True in a
    // run.
    bool begins(NodeId directory, NodeId parent, SteadyTime now);
    void ends(NodeId directory, SteadyTime now);
    // Whether a run is under way in the directory.
    [[nodiscard]] bool is_running(NodeId directory, SteadyTime now) const;

private:
    static constexpr std::size_t kLength = 16;
    static constexpr Milliseconds kTime{1000};
    // For programs that remove at the same time.
    static constexpr std::size_t kMaxRuns = 8;

    struct Run {
        NodeId directory = 0;
        NodeId parent = 0;
        SteadyTime ended{};
        std::size_t count = 0;
        // The last gaps between the end of a removal and the beginning of the next.
        std::array<SteadyTime::duration, kLength> gaps{};

        [[nodiscard]] bool is_fast() const;
    };

    [[nodiscard]] static bool are_neighbours(const Run& run, NodeId directory, NodeId parent);
    Run& run_for(NodeId directory, NodeId parent);

    std::vector<Run> runs_;
};

}  // namespace ckptfs::fs
