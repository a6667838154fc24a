// SPDX-License-Identifier: Apache-2.0
// rename(2), which S3 does not have: copy, then delete.
//
// For a file that is still being written rename is a commit barrier: what was written is published, and a failure is
// the rename's. A file still wholly in memory goes straight to its new name. A large object is copied in parallel
// parts. A directory is renamed as a commit (directory_rename.h).
//
// While a rename is under way no file is committed under either name: what is synced meanwhile waits, and goes to the
// new one.
//
// renames_directories.cc has what is for directories alone.
//
// Threads: rename() may be called from any thread; the work waits for the store on the blocking executor.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "fs/files/file_commits.h"
#include "fs/files/file_failures.h"
#include "fs/gate/commit_gate.h"
#include "fs/names/directories.h"
#include "fs/objects/tree_copy.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class Renames {
public:
    Renames(SharedState& state, Lookups& lookups, Directories& directories, FileCommits& commits,
            FileFailures& failures, CommitGate& gate)
        : state_(state),
          lookups_(lookups),
          directories_(directories),
          commits_(commits),
          failures_(failures),
          gate_(gate) {}

    void rename(NodeId parent, std::string name, NodeId new_parent, std::string new_name, unsigned flags,
                StillCounts counts, Reply<void> reply);

private:
    struct Request {
        NodeId parent = 0;
        std::string name;
        NodeId new_parent = 0;
        std::string new_name;
        unsigned flags = 0;
        // Whether the new name may be taken, for a file; directories ask again.
        Status may_be_taken;
        // The gate's permission, if the new name is that of a commit marker.
        StillCounts counts;
    };
    struct Move {
        NodePtr node;
        NodePtr old_parent;
        std::string old_name;
        NodePtr new_parent;
        std::string new_name;
        // Keys, without a trailing '/'.
        std::string old_key;
        std::string new_key;
        bool no_replace = false;
        // If a directory replaces an empty one: the ETag of that one's marker.
        std::string replaced_marker;
        // As in Request.
        StillCounts counts;
    };

    Status rename_now(const Request& request);
    Result<Move> resolve(NodeId parent, const std::string& name, NodeId new_parent, const std::string& new_name);
    Status check_target(Move& move);
    // ENOTEMPTY or EBUSY unless the directory to be replaced is empty and shown in the bucket; notes its marker's ETag.
    Status check_is_empty(Move& move);
    // Forgets what listings have shown of the names before.
    void forget_listed(const Move& move);
    Status rename_file(const Move& move);
    // True if the file was published under its new name directly; false if it has to be copied.
    Result<bool> publish_under_new_name(const Move& move);
    Result<bool> publish_under_new_name(const Move& move, const std::shared_ptr<FileWriter>& writer,
                                        const std::shared_ptr<WrittenVersion>& version);
    // Removes what stayed under the old name of a file that was published under its new one. The same rename, tried
    // again, does so if the new name still has the file: what stayed is an earlier version, which must not replace the
    // later one.
    Status remove_leftover(const Move& move, const LeftoverName& left);
    // False, without any change, if nothing was left over under the old name.
    Result<bool> remove_if_left_over(const Move& move);
    [[nodiscard]] std::optional<ObjectVersion> committed_version(const Node& node) const;
    // ETag of what the node's name holds in the bucket, as far as this mount knows; empty for nothing.
    [[nodiscard]] std::string etag_under_name(const Node& node) const;
    // Gives the node this version and this name.
    void note_new_place(const NodePtr& node, const NodePtr& parent, const std::string& name, const Copied& copied);
    // Gives the name to the node. Returns the writers of the file that had it: the caller orphans them after it has
    // released the lock, since nothing of that file may arrive any more.
    [[nodiscard]] std::vector<std::shared_ptr<FileWriter>> take_name(const NodeTable::Lock& lock, const NodePtr& node,
                                                                     const NodePtr& parent, const std::string& name)
        REQUIRES(node_table);
    // Ends overtaken versions of the old name, which have no name any more.
    void end_overtaken(const Move& move);
    // `counts`: for a commit marker. Not renewed, as that would take a blocking thread while this one waits for it.
    Status commit_writer(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, const StillCounts& counts);
    // `done` is called when nothing is in flight any more.
    void start_commit(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, const StillCounts& counts,
                      std::function<void(Status)> done);
    // Returns a function that notifies the node's writer, to be called after the lock is released.
    std::function<void()> note_moved_file(const NodeTable::Lock& lock, const NodePtr& moved, const Copied& copied)
        REQUIRES(node_table);
    static void note_copy(const NodeTable::Lock& lock, Node& node, const ObjectVersion& copy) REQUIRES(node_table);
    std::function<void()> note_replaced_file(const NodeTable::Lock& lock, const NodePtr& node) REQUIRES(node_table);
    // Later commits go to the new name; if they cannot, the writer fails, with `what` as the reason: a literal.
    std::function<void()> note_moved_writer(const NodeTable::Lock& lock, const NodePtr& node, std::string_view what)
        REQUIRES(node_table);

    Status rename_directory(const Move& move);
    void wait_for_late_requests(Milliseconds time);
    void leave_failures(const std::string& from, const std::string& to);
    void add_later_failures(const std::string& directory, std::vector<FailedRecord>& failures) const;
    void set_moving(Node& directory, bool moving);
    // Lets the names lead to the copies.
    void note_moved_directory(const Move& move, const Copies& copies);
    Status commit_writers_below(const Move& move);
    using Writing = std::vector<std::pair<NodePtr, std::shared_ptr<FileWriter>>>;
    Status commit_all(const Writing& writing, const StillCounts& counts);

    SharedState& state_;
    Lookups& lookups_;
    Directories& directories_;
    FileCommits& commits_;
    FileFailures& failures_;
    CommitGate& gate_;
    // Renames that wait for late requests.
    std::atomic<int> waiting_ = 0;
};

}  // namespace ckptfs::fs
