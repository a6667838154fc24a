// SPDX-License-Identifier: Apache-2.0
// The node table: which object version each node id of the kernel stands for.
//
// A node is one version of one object. When a name turns out to hold another version, the name gets a new node with the
// same inode number, and the readers of the old one keep what they opened. Where the old one is still open for writing,
// the new one has a number of its own, so that the descriptors of either can be told from the other's. A node keeps its
// identity across the commits of its own writer; an open for changes while others read the file gets a new one.
// Directories have one node as long as they are looked up.
//
// Inode numbers follow from names, so that they are the same on every mount and after every restart. A node keeps its
// number when it is renamed, since the kernel goes on showing it for open files; a new file of the old name then gets
// another one.
//
// Ownership: the table owns nodes from the first lookup to the last forget, and longer while a handle, a writer or a
// child needs them; sockets and FIFOs, which are nowhere else, as long as they have a name. Paths follow from parents,
// so that renaming a directory moves everything below it. Threads: functions with a `lock` argument expect the table's
// mutex to be held. No callback runs and no request is sent under it. Lock order: the table, then a handle table, a
// writer or a reader (their state is looked at under it; they never call back with a lock held).
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
#include "fs/passthrough.h"
#include "fs/written_version.h"
#include "read/file_reader.h"
#include "write/file_writer.h"

namespace ckptfs::fs {

struct ObjectVersion {
    std::string etag;
    // Of the file, or of a symbolic link's target.
    std::uint64_t size = 0;
    std::uint64_t stored_size = 0;
    WallTime modified{};
    FileType type = FileType::kFile;
};

// Of a socket or FIFO.
struct SpecialAttributes {
    mode_t mode = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    WallTime modified{};
};

class Node;
using NodePtr = std::shared_ptr<Node>;

// What a directory's node has besides. Most nodes are of files, and take less without.
struct DirectoryState {
    // When this mount last changed one of its names. Of one that was forgotten since: no earlier.
    WallTime names_changed{};
    std::map<std::string, Node*, std::less<>> children;
    // Names that were removed or renamed away by this mount, the latest last, and the number of the last that is not
    // among them any more.
    struct Removal {
        std::string name;
        std::uint64_t number = 0;
    };
    std::vector<Removal> removals;
    std::uint64_t forgotten_removal = 0;
};

struct ExpectedOpen {
    // A thread id, as FUSE reports it; kByName for truncate(2), which tells none.
    static constexpr pid_t kByName = -1;
    // Twice what a slow lookup takes.
    static constexpr std::chrono::seconds kFor{10};
    pid_t thread = 0;
    bool writes = false;
    SteadyTime since{};
    // The bucket was asked last, or the open began: the lookup that follows is to know no less. Empty where it does not
    // matter what is in the bucket.
    SteadyTime asked{};
};

// The mutex of the table, as the analysis knows it: by one name, as a node cannot name its table. A process has one.
class CAPABILITY("mutex") NodeTableMutex {};
inline constexpr NodeTableMutex node_table;

class Node {
public:
    Node(NodeId node_id, FileType node_type) : id(node_id), type(node_type) {}

    const NodeId id;
    const FileType type;
    // Removed, or replaced by a rename, while it is open: what is written to it is not published, as on a local disk.
    std::atomic<bool> removed = false;
    // What was written after that is kept nowhere, so that it cannot be read back.
    std::atomic<bool> has_dropped_writes = false;

    NodePtr parent GUARDED_BY(node_table);
    std::string name GUARDED_BY(node_table);
    // The same as long as the node lives.
    std::uint64_t inode GUARDED_BY(node_table) = 0;
    std::uint64_t lookups GUARDED_BY(node_table) = 0;
    // Its name leads to this node. False once removed, or once another version has the name.
    bool linked GUARDED_BY(node_table) = true;
    // A handle that the kernel knows by this node's inode has a version of its own, or did: what the kernel keeps of
    // the inode may be that of another version.
    bool shares_inode GUARDED_BY(node_table) = false;
    // Its name leads to another node, with which its version has moved: it is there as long as that one is not written.
    bool has_moved GUARDED_BY(node_table) = false;
    int open_handles GUARDED_BY(node_table) = 0;
    int writable_handles GUARDED_BY(node_table) = 0;

    // Files: what the bucket holds, as this node's version; empty until the first commit.
    std::optional<ObjectVersion> committed GUARDED_BY(node_table);
    // Since when the name has last been known to hold this node (this version, or this directory): of what the bucket
    // told it is when it was asked, as another mount may have changed the name before the answer came.
    SteadyTime checked GUARDED_BY(node_table){};
    // It holds another version than the one that the kernel looked up, and may know the size of.
    bool is_other_than_looked_up GUARDED_BY(node_table) = false;
    // What was written and given up had another size, which the kernel may believe for a moment: then it fills up with
    // zeros when it reads ahead, or takes the file for shorter.
    bool has_uncertain_size GUARDED_BY(node_table) = false;
    // Not answered yet. What was written and given up is dropped from the page cache after them.
    int reads_across_end GUARDED_BY(node_table) = 0;
    bool drops_pages_after_reads GUARDED_BY(node_table) = false;
    // Present from the first open for writing until its last writable handle is closed and all is committed.
    std::shared_ptr<FileWriter> writer GUARDED_BY(node_table);
    // Made with each `writer`; stays until the next.
    std::shared_ptr<WrittenVersion> version GUARDED_BY(node_table);
    std::shared_ptr<FileReader> reader GUARDED_BY(node_table);
    // The version whose pages the kernel may hold.
    std::string pages_etag GUARDED_BY(node_table);
    // And it has none of another: one that it was told to drop them for has read since. The answers to two opens may
    // change places on their way.
    bool has_only_its_pages GUARDED_BY(node_table) = false;
    // Shown while a writer is at work.
    WallTime written GUARDED_BY(node_table){};
    // When it was opened for writing last.
    SteadyTime opened_to_write GUARDED_BY(node_table){};
    // Published while it grows.
    bool is_live_log GUARDED_BY(node_table) = false;
    // Some process had a lock on it since it was opened by the first of those that have it open now.
    bool is_lock_file GUARDED_BY(node_table) = false;
    // Of what was written and not saved, where nothing came before it: a handle that is still open has nothing to read.
    std::optional<std::uint64_t> lost_size GUARDED_BY(node_table);
    // ETag of what an earlier version of the name has committed since this node got it, and has committed nothing
    // itself: that is what the name holds in the bucket. Null in nearly all nodes, which take less so.
    std::unique_ptr<const std::string> committed_beside GUARDED_BY(node_table);
    // Nothing is there but a file that failed: the name can be unlinked, and nothing else.
    bool is_failed_name GUARDED_BY(node_table) = false;
    // Callers that were told to repeat the lookup and so will open this node, which then needs no further check: the
    // kernel repeats a lookup only once.
    std::vector<ExpectedOpen> expected GUARDED_BY(node_table);

    // Read-only handles that have read: what they see of this version does not change.
    int readers GUARDED_BY(node_table) = 0;
    // Read-only handles that use the page cache: once one of them has read, the others find there what it read.
    int cached_handles GUARDED_BY(node_table) = 0;
    bool pages_were_read GUARDED_BY(node_table) = false;
    // Those of them that read past this process, and what they read: the node's version. Who writes gets another node.
    int passed_handles GUARDED_BY(node_table) = 0;
    std::shared_ptr<BackingFile> backing GUARDED_BY(node_table);
    // Opens for writing that are not answered yet.
    std::vector<std::weak_ptr<const void>> opens_to_write GUARDED_BY(node_table);
    // All of its writers only append.
    bool only_appended GUARDED_BY(node_table) = false;
    // Commits that did more than append: a handle that has read the earlier content sees nothing of the new one.
    std::uint64_t rewrites GUARDED_BY(node_table) = 0;
    // A file that is appended to while others have it open gets a new node as well: they see what was committed, and
    // then only (open_files_reading.cc). From the node with the longer file to those that follow it, and back.
    std::vector<std::weak_ptr<Node>> followers GUARDED_BY(node_table);
    NodePtr grows_as GUARDED_BY(node_table);
    // What a follower's reads bring already, and its size does not show yet.
    std::unique_ptr<const ObjectVersion> grown GUARDED_BY(node_table);

    // Symbolic links; null until it has been read.
    std::unique_ptr<const std::string> symlink_target GUARDED_BY(node_table);

    // Sockets and FIFOs.
    std::unique_ptr<SpecialAttributes> special GUARDED_BY(node_table);

    // Directories.
    // A rename of this mount is under way: the name leads here whatever the bucket shows.
    bool moving GUARDED_BY(node_table) = false;
    // The marker object is known to exist, so that the directory outlives its last entry.
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

    void was_there(SteadyTime asked) REQUIRES(node_table) { checked = std::max(checked, asked); }
    // The kernel is to drop what it has of them.
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
    // Something that is not in the bucket, and is to be.
    [[nodiscard]] bool is_unsaved() const REQUIRES(node_table) {
        return writer != nullptr && writer->dirty() && !removed &&
               !(version != nullptr && version->is_truncated_away());
    }
    // There is such a file for one who creates the name.
    [[nodiscard]] bool is_known_here() const REQUIRES(node_table) {
        return writer != nullptr || moving || is_special(type);
    }
    // `committed` is not, or not yet, what its writer has. Asked in this order: a commit that ends in between cannot be
    // noted while the table is locked.
    [[nodiscard]] bool is_being_changed() const REQUIRES(node_table) {
        return writer != nullptr && (writer->dirty() || (version != nullptr && version->commits.any()));
    }
    // It has the name, whatever the bucket shows there. Not where all is saved, and the file is only still open: that
    // may be for as long as a child process lives, and another mount may replace or remove it meanwhile.
    [[nodiscard]] bool has_its_name_here() const REQUIRES(node_table) {
        const bool is_written = is_being_changed() || (writer != nullptr && (writer->failed() || !committed));
        return linked && (is_written || moving || is_special(type));
    }

private:
    // Null until something is known.
    std::unique_ptr<DirectoryState> directory_ GUARDED_BY(node_table);
};

class NodeTable {
public:
    class SCOPED_CAPABILITY Lock {
    public:
        explicit Lock(Mutex& mutex) ACQUIRE(node_table) : lock_(mutex) {}
        // Never called, and defined nowhere: what lock() returns is made in place. The analysis goes by it.
        Lock(Lock&&) noexcept ACQUIRE(node_table);
        ~Lock() RELEASE() = default;

    private:
        MutexLock lock_;
    };

    NodeTable();

    [[nodiscard]] Lock lock() const { return Lock(mutex_); }
    [[nodiscard]] const NodePtr& root() const { return root_; }

    [[nodiscard]] NodePtr find(const Lock&, NodeId id) const REQUIRES(node_table);
    // The node that the name leads to, if the table knows one.
    [[nodiscard]] NodePtr child(const Lock&, const NodePtr& parent, std::string_view name) const REQUIRES(node_table);
    // A new node for the name; a node that had it keeps its readers and loses the name.
    NodePtr link_new(const Lock&, const NodePtr& parent, const std::string& name, FileType type) REQUIRES(node_table);
    // The name leads nowhere any more.
    void unlink(const Lock&, const NodePtr& node) REQUIRES(node_table);
    // Nodes that lost the name of this one to it, and are open.
    [[nodiscard]] std::vector<NodePtr> earlier_of(const Lock&, const Node& node) const REQUIRES(node_table);
    // Versions that lost their name to a later one of this mount, and can still be written and published.
    [[nodiscard]] std::vector<NodePtr> overtaken(const Lock&) const REQUIRES(node_table);
    // Those of one name.
    [[nodiscard]] std::vector<NodePtr> overtaken(const Lock& lock, const NodePtr& parent, std::string_view name) const
        REQUIRES(node_table);
    // Gives the node another name; a node that had it is removed.
    void move(const Lock&, const NodePtr& node, const NodePtr& new_parent, const std::string& new_name)
        REQUIRES(node_table);
    // The name is removed, with every version that is open under it. Returns their writers: nothing of theirs is to
    // be published any more, once the lock is gone.
    [[nodiscard]] std::vector<std::shared_ptr<FileWriter>> remove(const Lock& lock, const NodePtr& parent,
                                                                  const std::string& name) REQUIRES(node_table);
    // The caller will look the name up once more, and open what it finds. It may have no node until then.
    void expect(const Lock&, const NodePtr& parent, const std::string& name, ExpectedOpen expected)
        REQUIRES(node_table);
    void expect(const Lock& lock, Node& node, ExpectedOpen expected) REQUIRES(node_table);
    // They have looked once more, and found nothing: what has the name later is to be asked for as ever.
    void expect_no_more(const Lock&, const Node& parent, std::string_view name) REQUIRES(node_table);
    // Removals of names and renames are numbered, so that what the store said before one can be told from what it says
    // after.
    void note_removal(const Lock&, Node& directory, const std::string& name) REQUIRES(node_table);
    [[nodiscard]] std::uint64_t last_removal(const Lock&) const REQUIRES(node_table) { return last_removal_; }
    // Whether the name was removed after that one; `or_unknown`: also where so many were that it is not known any more.
    [[nodiscard]] static bool was_removed_since(const Lock&, const Node& directory, std::string_view name,
                                                std::uint64_t removal, bool or_unknown = true) REQUIRES(node_table);
    // Of the files below it, one is being written, or was saved or found after `since`.
    [[nodiscard]] static bool holds_writer(const Lock& lock, const Node& directory,
                                           SteadyTime since = SteadyTime::max()) REQUIRES(node_table);
    // Path relative to the mount; directories end in '/'.
    [[nodiscard]] std::string path(const Lock&, const Node& node) const REQUIRES(node_table);
    [[nodiscard]] bool is_below(const Lock&, const Node& node, const Node& directory) const REQUIRES(node_table);

    // Counts as one lookup, until forget(): what is under way in a directory is known by its node ID, under which the
    // kernel is to find it again. A caller that was killed no longer keeps it.
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
    // Those that hold a seek table, of files that no handle has open any more.
    [[nodiscard]] std::vector<std::shared_ptr<FileReader>> take_idle_readers(const Lock&) const REQUIRES(node_table);
    // All files and symbolic links that have a name below the directory.
    [[nodiscard]] std::vector<NodePtr> objects_below(const Lock& lock, const NodePtr& directory) const
        REQUIRES(node_table);
    [[nodiscard]] std::size_t size(const Lock&) const REQUIRES(node_table) { return nodes_.size(); }
    // Sockets and FIFOs that have a name.
    [[nodiscard]] std::size_t specials(const Lock&) const REQUIRES(node_table) { return specials_; }
    // One lies in it.
    [[nodiscard]] static bool holds_special(const Lock&, const Node& directory) REQUIRES(node_table);

    // A node takes about 1.1 KB, outside the budget for data. Beyond this many, names that no program uses are taken
    // from the kernel, which otherwise keeps every name it was told as long as it has memory itself.
    static constexpr std::size_t kMostUnused = 40'960;
    [[nodiscard]] bool is_crowded(const Lock&) const REQUIRES(node_table) { return nodes_.size() >= kMostUnused; }
    // If the kernel returns names more slowly than listings bring new ones, listings give it no more.
    static constexpr std::size_t kMost = kMostUnused + kMostUnused / 4;
    [[nodiscard]] bool is_full(const Lock&) const REQUIRES(node_table) { return nodes_.size() >= kMost; }
    // A few in turn, by parent and name: so many that the table shrinks when each new node asks for them.
    [[nodiscard]] std::vector<std::pair<NodeId, std::string>> take_unused(const Lock&) const REQUIRES(node_table);

private:
    [[nodiscard]] std::uint64_t free_inode(const Lock& lock, const Node& node) const REQUIRES(node_table);
    [[nodiscard]] bool is_of_another_file(std::uint64_t inode, const Node& node) const REQUIRES(node_table);
    [[nodiscard]] static bool is_expected(const Node& node) REQUIRES(node_table);
    void take_expected_names(const Lock& lock, Node& node) REQUIRES(node_table);
    void drop_expired(const Lock& lock, SteadyTime now) REQUIRES(node_table);
    [[nodiscard]] static bool is_followed(const Node& node) REQUIRES(node_table);
    // They go with their directory.
    void unlink_specials_below(const Lock& lock, const NodePtr& directory) REQUIRES(node_table);
    static constexpr std::size_t kMostRemovals = 32;
    // Unless another node has the name.
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
    // Where take_unused() goes on.
    mutable NodeId swept_ GUARDED_BY(node_table) = kRootNode;
    std::unordered_map<NodeId, NodePtr> nodes_ GUARDED_BY(node_table);
    // Of names without a node; the oldest go first.
    struct ExpectedName {
        NodeId parent;
        std::string name;
        ExpectedOpen open;
    };
    std::deque<ExpectedName> expected_names_ GUARDED_BY(node_table);
    // Those with a node, as they came: a caller that is killed in between never takes what keeps the node.
    std::deque<std::pair<NodeId, SteadyTime>> expected_nodes_ GUARDED_BY(node_table);
    // May hold some that no longer are.
    mutable std::vector<std::weak_ptr<Node>> overtaken_ GUARDED_BY(node_table);
    // Of all nodes; versions of one file share a number.
    std::unordered_multimap<std::uint64_t, const Node*> by_inode_ GUARDED_BY(node_table);
};

}  // namespace ckptfs::fs
