// SPDX-License-Identifier: Apache-2.0
// rename(2), which S3 does not have: copy, then delete.
//
// For a file that is still being written rename is a commit barrier: what was written is published, and a failure is
// the rename's. A file still wholly in memory goes straight to its new name. A large object is copied in parallel
// parts. A directory is renamed as a commit (directory_rename.h).
//
// While it is under way no file is committed under either name: what is synced meanwhile waits, and goes to the new
// one.
//
// renames_directories.cc has what is done for directories alone.
//
// Threads: rename() may be called from any thread; the work waits for the store on the blocking executor.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "fs/commit_gate.h"
#include "fs/directories.h"
#include "fs/open_files.h"
#include "fs/shared_state.h"
#include "fs/tree_copy.h"

namespace ckptfs::fs {

class Renames {
public:
    Renames(SharedState& state, Lookups& lookups, Directories& directories, OpenFiles& open_files, CommitGate& gate)
        : state_(state), lookups_(lookups), directories_(directories), open_files_(open_files), gate_(gate) {}

    void rename(NodeId parent, std::string name, NodeId new_parent, std::string new_name, unsigned flags,
                StillCounts counts, Reply<void> reply);

private:
    struct Request {
        NodeId parent = 0;
        std::string name;
        NodeId new_parent = 0;
        std::string new_name;
        unsigned flags = 0;
        // Where it is a file's: directories ask again.
        Status may_be_taken;
        // Where the new name is that of a commit marker.
        StillCounts counts;
    };
    struct Move {
        NodePtr node;
        NodePtr old_parent;
        std::string old_name;
        NodePtr new_parent;
        std::string new_name;
        // Without a trailing '/'.
        std::string old_key;
        std::string new_key;
        bool no_replace = false;
        // ETag of its marker, where a directory replaces an empty one.
        std::string replaced_marker;
        // As in Request.
        StillCounts counts;
    };

    Status rename_now(const Request& request);
    Result<Move> resolve(NodeId parent, const std::string& name, NodeId new_parent, const std::string& new_name);
    Status check_target(Move& move);
    // The directory that is to be replaced, as the bucket shows it.
    Status check_is_empty(Move& move);
    // What a list has shown of the names is from before.
    void forget_listed(const Move& move);
    Status rename_file(const Move& move);
    // Done where the file could be published under its new name at once.
    Result<bool> publish_under_new_name(const Move& move);
    Result<bool> publish_under_new_name(const Move& move, const std::shared_ptr<FileWriter>& writer,
                                        const std::shared_ptr<WrittenVersion>& version);
    // What stayed under the old name where a file was published under its new one. The same rename, tried again,
    // removes it where the new name still has the file: it is an earlier version, and is not to replace the later one.
    Status remove_leftover(const Move& move, const LeftoverName& left);
    // False, and no change, where there is none.
    Result<bool> remove_if_left_over(const Move& move);
    [[nodiscard]] std::optional<ObjectVersion> committed_version(const Node& node) const;
    // Of what its name holds in the bucket, as far as this mount knows; empty where that is nothing.
    [[nodiscard]] std::string etag_under_name(const Node& node) const;
    // The node is this version, and the name leads to it.
    void note_new_place(const NodePtr& node, const NodePtr& parent, const std::string& name, const Copied& copied);
    // The name is the node's from now on. Returns the writers of the file that had it: nothing of that is to arrive any
    // more, once the lock is gone.
    [[nodiscard]] std::vector<std::shared_ptr<FileWriter>> take_name(const NodeTable::Lock& lock, const NodePtr& node,
                                                                     const NodePtr& parent, const std::string& name)
        REQUIRES(node_table);
    // Versions of the old name that were overtaken have no name any more.
    void end_overtaken(const Move& move);
    // `counts`: of a commit marker. It is not renewed, which would take a blocking thread while this one waits for it.
    Status commit_writer(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, const StillCounts& counts);
    // `done` comes when nothing is in flight any more.
    void start_commit(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, const StillCounts& counts,
                      std::function<void(Status)> done);
    // Returns what the node's writer has to be told once the lock is gone.
    std::function<void()> note_moved_file(const NodeTable::Lock& lock, const NodePtr& moved, const Copied& copied)
        REQUIRES(node_table);
    static void note_copy(const NodeTable::Lock& lock, Node& node, const ObjectVersion& copy) REQUIRES(node_table);
    std::function<void()> note_replaced_file(const NodeTable::Lock& lock, const NodePtr& node) REQUIRES(node_table);
    // Later commits go to the new name; where they cannot, the writer fails for what has happened. `what` is a literal.
    std::function<void()> note_moved_writer(const NodeTable::Lock& lock, const NodePtr& node, std::string_view what)
        REQUIRES(node_table);

    Status rename_directory(const Move& move);
    void leave_failures(const std::string& from, const std::string& to);
    void add_later_failures(const std::string& directory, std::vector<FailedRecord>& failures) const;
    void set_moving(Node& directory, bool moving);
    // The names lead to the copies.
    void note_moved_directory(const Move& move, const Copies& copies);
    Status commit_writers_below(const Move& move);
    using Writing = std::vector<std::pair<NodePtr, std::shared_ptr<FileWriter>>>;
    Status commit_all(const Writing& writing, const StillCounts& counts);

    SharedState& state_;
    Lookups& lookups_;
    Directories& directories_;
    OpenFiles& open_files_;
    CommitGate& gate_;
};

}  // namespace ckptfs::fs
