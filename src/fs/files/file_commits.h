// SPDX-License-Identifier: Apache-2.0
// Commits: in which order they are made, what holds a commit marker back, and what is noted of a version that was
// published. Which close is a commit is decided in file_closes.h.
//
// Threads: all functions may be called from any thread; nothing here blocks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/owned_timers.h"
#include "fs/file_counters.h"
#include "fs/files/close_rule.h"
#include "fs/files/draining.h"
#include "fs/files/file_failures.h"
#include "fs/files/kernel_pages.h"
#include "fs/gate/commit_gate.h"
#include "fs/names/lookups.h"
#include "fs/state/handles.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

// Why a version is published, and for a close also the process that closes.
struct CommitCause {
    // Implicit, as most commits are not caused by a close.
    CommitCause(CommitReason why, pid_t closes = kUnseenProcess) : reason(why), closing(closes) {}

    CommitReason reason;
    pid_t closing;
};

class FileCommits {
public:
    FileCommits(SharedState& state, Lookups& lookups, CommitGate& gate, HandleTable& handles, FileCounters& counters,
                KernelPages& pages, Draining& draining)
        : state_(state),
          lookups_(lookups),
          gate_(gate),
          handles_(handles),
          counters_(counters),
          pages_(pages),
          draining_(draining),
          waits_(state.env.timer) {}

    // Publishes what was written to the node so far, and notes the new version in the node. Waits for other changes of
    // the key; the caller must hold no place in the key order.
    void commit_in_order(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, const CommitCause& cause,
                         Reply<void> reply);
    // As above, for a caller that is first in the key order. A failure is replied at once. `ended` is called when
    // nothing is in flight; a success may be replied later, once the kernel has dropped the pages of the version
    // before. `permit`: for a commit marker.
    void commit(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, const CommitCause& cause,
                const PublishPermit& permit, Reply<void> reply, std::function<void()> ended);
    // Called before `source_key` is published as a commit marker: commits the other files being written below the
    // marker's directory, and asks whether anything there has failed, on any mount.
    void allow_marker(const std::string& marker_key, const std::string& source_key, Reply<StillCounts> reply);

    // Whether a process other than `except` that answers for unsaved data is being killed, with its own FLUSH still to
    // come.
    [[nodiscard]] bool is_left_half(const Node& node, const WrittenVersion& version,
                                    pid_t except = kUnseenProcess) const;
    [[nodiscard]] static ReleaseAction decide_last_release(const Handle& handle);
    // Whether, at the last writable handle's release, the file was truncated again since all of it was saved.
    [[nodiscard]] bool is_truncated_again(const Handle& handle) const;

private:
    struct KeyToCommit {
        std::string key;
        // The key is a commit marker's, and the gate has allowed it.
        bool is_allowed = false;
        PublishPermit permit{};
    };
    [[nodiscard]] bool publishes_marker(const FileWriter& writer, const std::string& key, CommitReason reason) const;
    void commit_when_first(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, const KeyToCommit& to,
                           const CommitCause& cause, Reply<void> reply);
    void commit_siblings(const std::string& marker_key, const std::string& source_key, Reply<void> reply);
    void commit_marker(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, const std::string& key,
                       const CommitCause& cause, Reply<void> reply);
    // Whether a process that is being killed may have written half of what is committed; not the process whose close it
    // is.
    [[nodiscard]] bool is_of_the_dying(const Node& node, const FileWriter& writer, const WrittenVersion& version,
                                       const CommitCause& cause) const;
    [[nodiscard]] bool is_left_to_others(const Node& node, const WrittenVersion* version, CommitReason reason) const;
    // Null if the writer is not, or no longer, that of the node.
    [[nodiscard]] std::shared_ptr<WrittenVersion> written_version_of(const NodePtr& node,
                                                                     const std::shared_ptr<FileWriter>& writer) const;
    void commit_once_more(const NodePtr& node, const std::shared_ptr<FileWriter>& writer,
                          const std::shared_ptr<WrittenVersion>& version, Reply<void> reply,
                          std::function<void()> ended);
    // The node's version is committed: notes that it has cut away what earlier versions held when it was opened.
    void replace_earlier_versions(const NodePtr& node, const CommittedObject& object);
    void give_up_attempts(const std::vector<NodePtr>& versions);
    struct Change {
        // The writer had something to save, though it may be what was there before.
        bool is_made = false;
        bool only_appended = false;
    };
    // Calls `dropped` when the kernel has dropped the pages of the version before, or a second later.
    void note_committed(const NodePtr& node, const CommittedObject& object, Change change,
                        std::function<void()> dropped);
    // Sets the node's version; returns the nodes that follow it.
    std::vector<KernelPages::Grown> note_version(const NodeTable::Lock& lock, const NodePtr& node,
                                                 const ObjectVersion& version, bool only_appended) REQUIRES(node_table);

    SharedState& state_;
    Lookups& lookups_;
    CommitGate& gate_;
    HandleTable& handles_;
    FileCounters& counters_;
    KernelPages& pages_;
    Draining& draining_;
    // Waits for the kernel to drop pages.
    OwnedTimers waits_;
};

}  // namespace ckptfs::fs
