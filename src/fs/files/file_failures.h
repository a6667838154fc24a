// SPDX-License-Identifier: Apache-2.0
// Files that fail or are given up: nothing of them is published, and commit markers wait for them.
//
// Threads: all functions may be called from any thread and do not block, unless it says otherwise.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fs/file_counters.h"
#include "fs/files/draining.h"
#include "fs/files/kernel_pages.h"
#include "fs/state/handles.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

// The error of a version that a killed writer left half-written.
[[nodiscard]] Error lost_error(const FileWriter& writer);
[[nodiscard]] Error removed_error(const FileWriter& writer);

class FileFailures {
public:
    enum class EndOfFile : std::uint8_t { kFailed, kHeldBack };

    FileFailures(SharedState& state, FileCounters& counters, KernelPages& pages, Draining& draining)
        : state_(state), counters_(counters), pages_(pages), draining_(draining) {}

    // Notes the writer's first failure once it comes: from then on, commit markers have to wait for the file.
    void watch(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, pid_t opener,
               EndOfFile end = EndOfFile::kFailed);
    // Calls `answer` when other mounts can see the failure and nothing of the file is left in the store, after
    // FailedSiblings::kLongestWait at the latest.
    void answer_failed(const Handle& handle, const Error& error, std::function<void()> answer);
    // Gives up the version of a killed writer: publishes nothing, and logs that.
    void abort_killed(const Handle& handle, std::function<void()> ended);
    void give_up(const Handle& handle, const Error& why, EndOfFile end, std::function<void()> ended);

    // For a file whose name is removed: publishes nothing more of it, and waits until nothing of it is in flight. Its
    // handles stay open; where the writer is readable, they read what was written. On the blocking executor only.
    static void orphan(const std::shared_ptr<FileWriter>& writer);
    // Ends versions that were open under a name which a rename has moved: what they hold can no longer be published. On
    // the blocking executor only.
    void end_versions(const std::vector<NodePtr>& overtaken);

private:
    [[nodiscard]] bool has_lost_its_name(const NodeTable::Lock& lock, const Node& node) const REQUIRES(node_table);
    // The key under which other mounts look for the file.
    [[nodiscard]] std::string key_of_failure(const Node& node, const FileWriter& writer) const;
    void note_failed(const Node& node, const FileWriter& writer, pid_t opener, const Error& error);

    SharedState& state_;
    FileCounters& counters_;
    KernelPages& pages_;
    Draining& draining_;
};

}  // namespace ckptfs::fs
