// SPDX-License-Identifier: Apache-2.0
// The node table: which object version each node id of the kernel stands for.
//
// A node is one version of one object. When a name turns out to hold another version, the name gets a new node with the
// same inode number, and the readers of the old one keep what they opened. If the old one is still open for writing,
// the new one has a number of its own, so that the descriptors of the two can be told apart. A node keeps its identity
// across the commits of its own writer; an open for changes while others read the file gets a new one. Directories have
// one node as long as they are looked up.
//
// Inode numbers follow from names, so that they are the same on every mount and after every restart. A node keeps its
// number when it is renamed, since the kernel goes on showing it for open files; a new file of the old name then gets
// another one.
//
// Ownership: the table owns nodes from the first lookup to the last forget, and longer while a handle, a writer or a
// child needs them. It owns sockets and FIFOs, which exist nowhere else, as long as they have a name. Paths follow from
// parents, so that renaming a directory moves everything below it. Threads: functions with a `lock` argument expect the
// table's mutex to be held. No callback runs and no request is sent under it. Lock order: the table, then a handle
// table, a writer or a reader (their state is read under the table's mutex; they never call back with a lock held).
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "fs/file_operations.h"
#include "fs/objects/object_version.h"
#include "fs/passthrough.h"
#include "fs/state/written_version.h"
#include "read/file_reader.h"
#include "write/file_writer.h"

namespace ckptfs::fs {

// Attributes of a socket or FIFO.
struct SpecialAttributes {
    mode_t mode = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    WallTime modified{};
};

class Node;
using NodePtr = std::shared_ptr<Node>;

// State that only directories have. Kept apart, since most nodes are files and take less memory without it.
struct DirectoryState {
    // When this mount last changed a name in the directory; that time or later if the table forgot the directory since.
    WallTime names_changed{};
    std::map<std::string, Node*, std::less<>> children;
    // Names that this mount removed, renamed away or found absent, the latest last; `forgotten_removal` is the number
    // of the latest one that is no longer in the list.
    struct Removal {
        std::string name;
        std::uint64_t number = 0;
    };
    std::vector<Removal> removals;
    std::uint64_t forgotten_removal = 0;
};

// An open that was answered ESTALE: its caller looks the name up again, and then opens the node.
struct ExpectedOpen {
    // Value of `thread` for truncate(2), whose request names no caller.
    static constexpr pid_t kByName = -1;
    // Twice the time of a slow lookup.
    static constexpr std::chrono::seconds kFor{10};
    // A thread id, as FUSE reports it.
    pid_t thread = 0;
    bool writes = false;
    SteadyTime since{};
    // When the open began, or last asked the bucket: the lookup that follows must not use an older answer. Zero where
    // the bucket's content does not matter.
    SteadyTime asked{};
};

// Stands for the table's mutex in the thread safety analysis, since a node cannot name its table. A process has one.
class CAPABILITY("mutex") NodeTableMutex {};
inline constexpr NodeTableMutex node_table;

class Node {
public:
    Node(NodeId node_id, FileType node_type) : id(node_id), type(node_type) {}

    const NodeId id;
    const FileType type;
    // The file was removed, or replaced by a rename: what is written to it while it is open is not published, as on a
    // local disk.
    std::atomic<bool> removed = false;
    // Data written after the removal was discarded, so that it cannot be read back.
    std::atomic<bool> has_dropped_writes = false;

    NodePtr parent GUARDED_BY(node_table);
    std::string name GUARDED_BY(node_table);
    // Constant for the life of the node.
    std::uint64_t inode GUARDED_BY(node_table) = 0;
    std::uint64_t lookups GUARDED_BY(node_table) = 0;
    // The name leads to this node. False once it was removed, or once another version has the name.
    bool linked GUARDED_BY(node_table) = true;
    // A handle that the kernel knows by this node's inode has, or had, a version of its own: what the kernel caches for
    // the inode may be of another version.
    bool shares_inode GUARDED_BY(node_table) = false;
    // Not linked, but its version was renamed together with the node that has the name: it is there until that node is
    // written.
    bool has_moved GUARDED_BY(node_table) = false;
    int open_handles GUARDED_BY(node_table) = 0;
    int writable_handles GUARDED_BY(node_table) = 0;

    // Files and symbolic links: this node's version as the bucket holds it; empty until the first commit.
    std::optional<ObjectVersion> committed GUARDED_BY(node_table);
    // When the name was last known to hold this node (this version, or this directory). For an answer of the bucket
    // this is the time of the request, as another mount may have changed the name before the answer came.
    SteadyTime checked GUARDED_BY(node_table){};
    // The node holds another version than the one that the kernel looked up, whose size it may have.
    bool is_other_than_looked_up GUARDED_BY(node_table) = false;
    // The kernel may have the size or pages of another version, as after data was written and given up: it would fill
    // up with zeros when it reads ahead, or take the file for shorter.
    bool has_uncertain_size GUARDED_BY(node_table) = false;
    // Unanswered reads that go beyond the end of `committed`. Where data was given up, its pages are dropped after them
    // (`drops_pages_after_reads`).
    int reads_across_end GUARDED_BY(node_table) = 0;
    bool drops_pages_after_reads GUARDED_BY(node_table) = false;
    // Set from the first open for writing until the last writable handle is released, with all committed or given up.
    std::shared_ptr<FileWriter> writer GUARDED_BY(node_table);
    // Created with each `writer`; stays until the next.
    std::shared_ptr<WrittenVersion> version GUARDED_BY(node_table);
    std::shared_ptr<FileReader> reader GUARDED_BY(node_table);
    // ETag of the version whose pages the kernel may hold.
    std::string pages_etag GUARDED_BY(node_table);
    // The kernel has no pages of another version: a handle at whose open it dropped them has read since. The open alone
    // does not show it, as the answers to two opens may overtake each other.
    bool has_only_its_pages GUARDED_BY(node_table) = false;
    // The modification time that is shown while there is a writer.
    WallTime written GUARDED_BY(node_table){};
    // When the file was last opened for writing.
    SteadyTime opened_to_write GUARDED_BY(node_table){};
    // The file is published while it grows (live_logs.h).
    bool is_live_log GUARDED_BY(node_table) = false;
    // A process was seen to hold a lock on the file; reset when the file is opened while no handle has it open.
    bool is_lock_file GUARDED_BY(node_table) = false;
    // Size of data that was written and not saved, where nothing is committed: an open handle has nothing to read.
    std::optional<std::uint64_t> lost_size GUARDED_BY(node_table);
    // ETag that an earlier version of the name has committed since this node got the name, while this node has
    // committed nothing: the name holds it in the bucket. Usually null, to keep nodes small.
    std::unique_ptr<const std::string> committed_beside GUARDED_BY(node_table);
    // The name is that of a file that failed, with no object: it can be unlinked, and nothing else.
    bool is_failed_name GUARDED_BY(node_table) = false;
    // Opens whose callers were told to repeat the lookup, and so will open this node. They need no further check: the
    // kernel repeats a lookup only once.
    std::vector<ExpectedOpen> expected GUARDED_BY(node_table);

    // Read-only handles that have read: what they see of this version does not change.
    int readers GUARDED_BY(node_table) = 0;
    // Read-only handles that use the page cache. Once pages were read (`pages_were_read`), all of them see these pages.
    int cached_handles GUARDED_BY(node_table) = 0;
    bool pages_were_read GUARDED_BY(node_table) = false;
    // Those of `cached_handles` that read past this process (passthrough.h), and the file that they read, which holds
    // the node's version. A writer gets another node.
    int passed_handles GUARDED_BY(node_table) = 0;
    std::shared_ptr<BackingFile> backing GUARDED_BY(node_table);
    // Opens for writing that are not answered yet.
    std::vector<std::weak_ptr<const void>> opens_to_write GUARDED_BY(node_table);
    // All writable handles of `writer` only append.
    bool only_appended GUARDED_BY(node_table) = false;
    // Number of commits that did more than append: a handle that has read earlier content sees nothing of the new one.
    std::uint64_t rewrites GUARDED_BY(node_table) = 0;
    // A file that is appended to while others have it open gets a new node. The earlier nodes follow it: they show what
    // it has committed, and only that (file_reads.h). `followers` lead from the longer file's node to them,
    // `grows_as` leads back.
    std::vector<std::weak_ptr<Node>> followers GUARDED_BY(node_table);
    NodePtr grows_as GUARDED_BY(node_table);
    // The version that a follower's reads already return, and whose size it does not show yet.
    std::unique_ptr<const ObjectVersion> grown GUARDED_BY(node_table);

    // The target of a symbolic link; null until it has been read.
    std::unique_ptr<const std::string> symlink_target GUARDED_BY(node_table);

    // Set for sockets and FIFOs only.
    std::unique_ptr<SpecialAttributes> special GUARDED_BY(node_table);

    // Directories: a rename by this mount is under way, and the name leads to this node whatever the bucket shows.
    bool moving GUARDED_BY(node_table) = false;
    // Directories: the marker object is known to exist, so that the directory outlives its last entry.
    bool has_marker GUARDED_BY(node_table) = false;
    [[nodiscard]] const DirectoryState& directory() const REQUIRES(node_table) {
        static const DirectoryState kEmpty;
        return directory_ == nullptr ? kEmpty : *directory_;
    }
    [[nodiscard]] DirectoryState& change_directory() REQUIRES(node_table) {
        if (directory_ == nullptr) {
            directory_ = std::make_unique<DirectoryState>();
        }
        return *directory_;
    }

    // The name was known to hold this node at `asked`.
    void was_there(SteadyTime asked) REQUIRES(node_table) { checked = std::max(checked, asked); }
    // Forgets what is known of the kernel's pages; the kernel drops them, by a notice or at the next open.
    void forget_pages() REQUIRES(node_table) {
        pages_etag.clear();
        has_only_its_pages = pages_were_read = false;
    }
    [[nodiscard]] bool is_read() const REQUIRES(node_table) {
        return readers > 0 || (cached_handles > 0 && pages_were_read);
    }
    [[nodiscard]] bool passes_through() const REQUIRES(node_table) { return passed_handles > 0; }
    [[nodiscard]] bool is_opened_to_write() const REQUIRES(node_table) {
        return std::any_of(opens_to_write.begin(), opens_to_write.end(),
                           [](const std::weak_ptr<const void>& open) { return !open.expired(); });
    }
    // The node has data that is to be committed and is not in the bucket yet.
    [[nodiscard]] bool is_unsaved() const REQUIRES(node_table) {
        return writer != nullptr && writer->dirty() && !removed &&
               !(version != nullptr && version->is_truncated_away());
    }
    // For a caller that creates the name: the file exists, whatever the bucket shows.
    [[nodiscard]] bool is_known_here() const REQUIRES(node_table) {
        return writer != nullptr || moving || is_special(type);
    }
    // `committed` is not, or not yet, what the writer has. `dirty()` comes first: a commit that has just cleared it is
    // still in `commits`, as it cannot be noted while the table is locked.
    [[nodiscard]] bool is_being_changed() const REQUIRES(node_table) {
        return writer != nullptr && (writer->dirty() || (version != nullptr && version->commits.any()));
    }
    // The name leads to this node whatever the bucket shows. Not if all is saved and the file is only still open: a
    // child process may hold it for long, and another mount may replace or remove it meanwhile.
    [[nodiscard]] bool has_its_name_here() const REQUIRES(node_table) {
        const bool is_written = is_being_changed() || (writer != nullptr && (writer->failed() || !committed));
        return linked && (is_written || moving || is_special(type));
    }

private:
    // Null until something is stored in it.
    std::unique_ptr<DirectoryState> directory_ GUARDED_BY(node_table);
};

class NodeTable {
public:
    class SCOPED_CAPABILITY Lock {
    public:
        explicit Lock(Mutex& mutex) ACQUIRE(node_table) : lock_(mutex) {}
        // For the thread safety analysis only. Never called, and defined nowhere: lock() constructs its result in
        // place.
        Lock(Lock&&) noexcept ACQUIRE(node_table);
        ~Lock() RELEASE() = default;

    private:
        MutexLock lock_;
    };

    NodeTable();

    [[nodiscard]] Lock lock() const { return Lock(mutex_); }
    [[nodiscard]] const NodePtr& root() const { return root_; }

    [[nodiscard]] NodePtr find(const Lock&, NodeId id) const REQUIRES(node_table);
    // The node that the name leads to; null if the table knows none.
    [[nodiscard]] NodePtr child(const Lock&, const NodePtr& parent, std::string_view name) const REQUIRES(node_table);
    // Creates a node for the name; a node that had the name keeps its readers and loses the name.
    NodePtr link_new(const Lock&, const NodePtr& parent, const std::string& name, FileType type) REQUIRES(node_table);
    // Takes the name from the node; the name leads nowhere then.
    void unlink(const Lock&, const NodePtr& node) REQUIRES(node_table);
    // Open nodes that lost their name to this one.
    [[nodiscard]] std::vector<NodePtr> earlier_of(const Lock&, const Node& node) const REQUIRES(node_table);
    // Versions that lost their name to a later one of this mount, and can still be written and published.
    [[nodiscard]] std::vector<NodePtr> overtaken(const Lock&) const REQUIRES(node_table);
    // As above, of one name.
    [[nodiscard]] std::vector<NodePtr> overtaken(const Lock& lock, const NodePtr& parent, std::string_view name) const
        REQUIRES(node_table);
    // Gives the node another name; a node that had that name is removed.
    void move(const Lock&, const NodePtr& node, const NodePtr& new_parent, const std::string& new_name)
        REQUIRES(node_table);
    // Removes the name, with every version that is open under it. Returns their writers: the caller orphans them after
    // it has released the lock, since nothing of theirs may be published any more.
    [[nodiscard]] std::vector<std::shared_ptr<FileWriter>> remove(const Lock& lock, const NodePtr& parent,
                                                                  const std::string& name) REQUIRES(node_table);
    // A caller will look the name up once more, and open what it finds. The name may have no node until then.
    void expect(const Lock&, const NodePtr& parent, const std::string& name, ExpectedOpen expected)
        REQUIRES(node_table);
    void expect(const Lock& lock, Node& node, ExpectedOpen expected) REQUIRES(node_table);
    // The expected callers have looked once more, and found nothing: a later node of the name is checked as usual.
    void expect_no_more(const Lock&, const Node& parent, std::string_view name) REQUIRES(node_table);
    // Removals of names and renames are numbered, so that an answer of the store from before one can be told from one
    // after it.
    void note_removal(const Lock&, Node& directory, const std::string& name) REQUIRES(node_table);
    [[nodiscard]] std::uint64_t last_removal(const Lock&) const REQUIRES(node_table) { return last_removal_; }
    // Whether the name was removed after the removal of this number; with `or_unknown` also true if there were so many
    // since that it is no longer known.
    [[nodiscard]] static bool was_removed_since(const Lock&, const Node& directory, std::string_view name,
                                                std::uint64_t removal, bool or_unknown = true) REQUIRES(node_table);
    // Whether an entry below the directory is being written, or was saved or found after `since`.
    [[nodiscard]] static bool holds_writer(const Lock& lock, const Node& directory,
                                           SteadyTime since = SteadyTime::max()) REQUIRES(node_table);
    // Path relative to the mount; directories end in '/'.
    [[nodiscard]] std::string path(const Lock&, const Node& node) const REQUIRES(node_table);
    [[nodiscard]] bool is_below(const Lock&, const Node& node, const Node& directory) const REQUIRES(node_table);

    // Adds one lookup, until forget(): work under way in a directory refers to its node ID, by which the kernel must
    // find the directory again even if the caller was killed and no longer holds it.
    static void keep(const Lock&, Node& node) REQUIRES(node_table) { ++node.lookups; }
    void forget(const Lock&, const NodePtr& node, std::uint64_t lookups) REQUIRES(node_table);
    // Drops the node if nothing needs it any more.
    void drop_if_unused(const Lock&, const NodePtr& node) REQUIRES(node_table);
    // `node` keeps its handles, and shows them what is committed to `longer`, which begins as the same file; so do
    // those that followed `node`.
    static void follow(const Lock&, const NodePtr& node, const NodePtr& longer) REQUIRES(node_table);
    void stop_following(const Lock& lock, const NodePtr& node) REQUIRES(node_table);
    [[nodiscard]] static std::vector<NodePtr> followers(const Lock&, const Node& node) REQUIRES(node_table);
    [[nodiscard]] std::vector<NodePtr> with_writers(const Lock&) const REQUIRES(node_table);
    // Takes the readers that hold a seek table from the files that no handle has open any more.
    [[nodiscard]] std::vector<std::shared_ptr<FileReader>> take_idle_readers(const Lock&) const REQUIRES(node_table);
    // All files and symbolic links that have a name below the directory.
    [[nodiscard]] std::vector<NodePtr> objects_below(const Lock& lock, const NodePtr& directory) const
        REQUIRES(node_table);
    [[nodiscard]] std::size_t size(const Lock&) const REQUIRES(node_table) { return nodes_.size(); }
    // Number of sockets and FIFOs that have a name.
    [[nodiscard]] std::size_t specials(const Lock&) const REQUIRES(node_table) { return specials_; }
    // Whether a socket or FIFO lies directly in the directory.
    [[nodiscard]] static bool holds_special(const Lock&, const Node& directory) REQUIRES(node_table);

    // A node takes about 1.1 KB, outside the budget for data. Beyond this many, the kernel is told to forget names that
    // no program uses; it otherwise keeps every name as long as it has memory itself.
    static constexpr std::size_t kMostUnused = 40'960;
    [[nodiscard]] bool is_crowded(const Lock&) const REQUIRES(node_table) { return nodes_.size() >= kMostUnused; }
    // If the kernel returns names more slowly than listings bring new ones, listings give it no more.
    static constexpr std::size_t kMost = kMostUnused + kMostUnused / 4;
    [[nodiscard]] bool is_full(const Lock&) const REQUIRES(node_table) { return nodes_.size() >= kMost; }
    // A few unused names in turn, by parent and name: so many that the table shrinks when each new node asks for them.
    [[nodiscard]] std::vector<std::pair<NodeId, std::string>> take_unused(const Lock&) const REQUIRES(node_table);

private:
    [[nodiscard]] std::uint64_t free_inode(const Lock& lock, const Node& node) const REQUIRES(node_table);
    [[nodiscard]] bool is_of_another_file(std::uint64_t inode, const Node& node) const REQUIRES(node_table);
    [[nodiscard]] static bool is_expected(const Node& node) REQUIRES(node_table);
    void take_expected_names(const Lock& lock, Node& node) REQUIRES(node_table);
    void drop_expired(const Lock& lock, SteadyTime now) REQUIRES(node_table);
    [[nodiscard]] static bool is_followed(const Node& node) REQUIRES(node_table);
    // Sockets and FIFOs go with their directory.
    void unlink_specials_below(const Lock& lock, const NodePtr& directory) REQUIRES(node_table);
    static constexpr std::size_t kMostRemovals = 32;
    // Removes the name from the parent's children, unless another node has it.
    static void forget_child(Node& parent, const Node& node) REQUIRES(node_table);
    void own(const NodePtr& node) REQUIRES(node_table);
    bool disown(const Node& node) REQUIRES(node_table);

    mutable Mutex mutex_;
    const NodePtr root_;
    NodeId next_id_ GUARDED_BY(node_table) = kRootNode + 1;
    std::size_t specials_ GUARDED_BY(node_table) = 0;
    std::uint64_t last_removal_ GUARDED_BY(node_table) = 0;
    // The latest `names_changed` of the directories that were forgotten.
    WallTime forgotten_change_ GUARDED_BY(node_table){};
    // Where take_unused() continues.
    mutable NodeId swept_ GUARDED_BY(node_table) = kRootNode;
    std::unordered_map<NodeId, NodePtr> nodes_ GUARDED_BY(node_table);
    // An expected open of a name without a node; the oldest go first.
    struct ExpectedName {
        NodeId parent;
        std::string name;
        ExpectedOpen open;
    };
    std::deque<ExpectedName> expected_names_ GUARDED_BY(node_table);
    // Nodes with expected opens, the oldest first, to expire those of callers that were killed: they would keep the
    // node.
    std::deque<std::pair<NodeId, SteadyTime>> expected_nodes_ GUARDED_BY(node_table);
    // May still hold nodes that are no longer overtaken.
    mutable std::vector<std::weak_ptr<Node>> overtaken_ GUARDED_BY(node_table);
    // All nodes, by inode number; versions of one file share a number.
    std::unordered_multimap<std::uint64_t, const Node*> by_inode_ GUARDED_BY(node_table);
};

}  // namespace ckptfs::fs
