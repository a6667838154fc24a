// SPDX-License-Identifier: Apache-2.0
// What stat(2) and ckptfs status tell of the files that are open.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <optional>
#include <vector>

#include "fs/file_counters.h"
#include "fs/state/handles.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class FileStatus {
public:
    FileStatus(SharedState& state, const HandleTable& handles, const FileCounters& counters)
        : state_(state), handles_(handles), counters_(counters) {}

    // The process of the thread, if attributes() of the node depends on it; found out without the table's lock.
    [[nodiscard]] std::optional<pid_t> process_to_tell_by(NodeId node, pid_t thread) const;
    // Attributes of the version behind the handle, if it is given; else of the version that the process opened last.
    [[nodiscard]] Attributes attributes(const NodeTable::Lock& lock, const Node& node, std::optional<HandleId> handle,
                                        std::optional<pid_t> process = {}) const REQUIRES(node_table);

    [[nodiscard]] std::vector<UploadProgress> uploads() const;
    [[nodiscard]] std::vector<ReadProgress> reads() const;
    [[nodiscard]] FileStatistics statistics() const;

private:
    // Of the versions that the kernel knows by the node's inode, the one that the process opened last; null for none.
    [[nodiscard]] NodePtr opened_last(const NodeTable::Lock& lock, const Node& node, pid_t process) const
        REQUIRES(node_table);

    SharedState& state_;
    const HandleTable& handles_;
    const FileCounters& counters_;
};

}  // namespace ckptfs::fs
