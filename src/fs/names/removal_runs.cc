// SPDX-License-Identifier: Apache-2.0
#include "fs/names/removal_runs.h"

#include <algorithm>
#include <numeric>

namespace ckptfs::fs {

bool RemovalRuns::Run::is_fast() const {
    return count > kLength && std::accumulate(gaps.begin(), gaps.end(), SteadyTime::duration{}) < kTime;
}

// Whether the directory is the run's, its parent, one below it, or one beside it.
bool RemovalRuns::are_neighbours(const Run& run, NodeId directory, NodeId parent) {
    return directory == run.directory || parent == run.directory || directory == run.parent ||
           (parent == run.parent && parent != 0);
}

RemovalRuns::Run& RemovalRuns::run_for(NodeId directory, NodeId parent) {
    const auto found = std::find_if(runs_.begin(), runs_.end(), [directory, parent](const Run& run) {
        return are_neighbours(run, directory, parent);
    });
    if (found != runs_.end()) {
        return *found;
    }
    if (runs_.size() < kMaxRuns) {
        return runs_.emplace_back();
    }
    Run& oldest = *std::min_element(runs_.begin(), runs_.end(),
                                    [](const Run& one, const Run& other) { return one.ended < other.ended; });
    oldest = Run{};
    return oldest;
}

bool RemovalRuns::begins(NodeId directory, NodeId parent, SteadyTime now) {
    Run& run = run_for(directory, parent);
    const SteadyTime::duration gap = run.count == 0 ? SteadyTime::duration{} : now - run.ended;
    if (gap > kTime) {
        run = Run{};
    }
    run.gaps[run.count++ % kLength] = std::max(gap, SteadyTime::duration{});
    run.directory = directory;
    run.parent = parent;
    run.ended = std::max(run.ended, now);
    return run.is_fast();
}

void RemovalRuns::ends(NodeId directory, SteadyTime now) {
    for (Run& run : runs_) {
        if (run.directory == directory) {
            run.ended = std::max(run.ended, now);
        }
    }
}

bool RemovalRuns::is_running(NodeId directory, SteadyTime now) const {
    return std::any_of(runs_.begin(), runs_.end(), [directory, now](const Run& run) {
        return run.directory == directory && run.is_fast() && now - run.ended < kTime;
    });
}

}  // namespace ckptfs::fs
