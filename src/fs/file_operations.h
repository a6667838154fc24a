// SPDX-License-Identifier: Apache-2.0
// All file operations, without FUSE: what the kernel asks for in, Results out.
//
// A request that must wait returns at once and calls its Reply later; nothing here blocks the calling thread on the
// network. One node is one version of one object: when a name turns out to hold another version than its node, open()
// answers ESTALE once and the kernel's second lookup finds a new node with the same inode number.
//
// Ownership: the file system outlives every reply. Nodes live from lookup to the matching forget; handles from open to
// release.
// Threads: every operation may be called from any thread, also concurrently for one node or handle. Replies run exactly
// once, without locks held, on the calling thread or any other.
#pragma once

#include <sys/statvfs.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptfs/buffer_pool.h"
#include "ckptfs/bytes.h"
#include "ckptfs/clock.h"
#include "ckptfs/status.h"

namespace ckptfs::fs {

using NodeId = std::uint64_t;
using HandleId = std::uint64_t;
// FUSE_ROOT_ID of linux/fuse.h.
inline constexpr NodeId kRootNode = 1;

template <class T>
using Reply = std::function<void(Result<T>)>;

struct Caller {
    // A thread id, as FUSE reports it.
    pid_t thread = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    // A write from the page cache: pages changed through a mapping, by no process in particular.
    bool is_page_cache = false;
    // Whether the caller has received a signal since the request came; empty if that cannot be known.
    std::function<bool()> interrupted{};
    // To be called once it is decided what the request means, if that is before the reply: the caller may go from then
    // on.
    std::function<void()> settled{};
    // Set once the caller was answered because it dies, though the request goes on; null where that cannot be.
    std::shared_ptr<const std::atomic<bool>> has_left{};
    // The write goes to its offset, though the descriptor was opened with O_APPEND: fcntl(2) has taken that away.
    bool in_place = false;
};

enum class FileType : std::uint8_t { kFile, kDirectory, kSymlink, kSocket, kFifo };

// True for sockets and FIFOs: the kernel handles their contents, and needs no data of ours.
[[nodiscard]] inline bool is_special(FileType type) {
    return type == FileType::kSocket || type == FileType::kFifo;
}

struct Attributes {
    std::uint64_t inode = 0;
    FileType type = FileType::kFile;
    mode_t mode = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    std::uint64_t size = 0;
    // False for an open file that has no name any more.
    bool is_linked = true;
    WallTime modified{};
    // How long the kernel may cache these attributes.
    Milliseconds valid_for{0};
};

struct Entry {
    NodeId node = 0;
    Attributes attributes;
    Milliseconds valid_for{0};
};

struct OpenedFile {
    HandleId handle = 0;
    bool direct_io = false;
    // The node's version is the one whose pages the kernel has.
    bool keep_cache = false;
    // BackingFile::number(); 0 if the kernel is to ask for what is read.
    int backing = 0;
};

struct CreatedFile {
    Entry entry;
    OpenedFile opened;
};

struct DirectoryEntry {
    std::string name;
    // Where the listing goes on after this entry.
    std::uint64_t next_offset = 0;
    // Set for readdirplus, with one lookup counted; without it only inode and type in `attributes` hold.
    Entry entry;
};

struct AttributeChange {
    std::optional<std::uint64_t> size;
    std::optional<WallTime> modified;
    // Mode and owner: kept by sockets and FIFOs only.
    std::optional<mode_t> mode;
    std::optional<uid_t> uid;
    std::optional<gid_t> gid;
};

class FileOperations {
public:
    virtual ~FileOperations() = default;

    virtual void lookup(NodeId parent, std::string name, const Caller& caller, Reply<Entry> reply) = 0;
    virtual void forget(NodeId node, std::uint64_t lookups) = 0;
    // `thread`: the thread that asks, 0 if it is not known. fstat(2) comes without a handle.
    virtual void getattr(NodeId node, std::optional<HandleId> handle, pid_t thread, Reply<Attributes> reply) = 0;
    virtual void setattr(NodeId node, std::optional<HandleId> handle, AttributeChange change,
                         Reply<Attributes> reply) = 0;

    // Extended attributes: ENODATA for a name that the node does not have. None of them can be set.
    virtual void get_extended(NodeId node, std::string_view name, Reply<std::string> reply) = 0;
    virtual void list_extended(NodeId node, Reply<std::vector<std::string>> reply) = 0;
    virtual void remove_extended(NodeId node, std::string_view name, Reply<void> reply) = 0;

    virtual void symlink(NodeId parent, std::string name, std::string target, Caller caller, Reply<Entry> reply) = 0;
    virtual void readlink(NodeId node, Reply<std::string> reply) = 0;

    // Makes a socket or a FIFO, of this mount only.
    virtual void make_special(NodeId parent, std::string name, FileType type, mode_t mode, Caller caller,
                              Reply<Entry> reply) = 0;

    // EPERM except for a file with a temporary name that gets its final one.
    virtual void link(NodeId node, NodeId new_parent, std::string new_name, Caller caller, Reply<Entry> reply) = 0;

    virtual void mkdir(NodeId parent, std::string name, Reply<Entry> reply) = 0;
    virtual void rmdir(NodeId parent, std::string name, Reply<void> reply) = 0;
    virtual void unlink(NodeId parent, std::string name, Reply<void> reply) = 0;
    // `flags`: RENAME_NOREPLACE of renameat2(2); EINVAL for others.
    virtual void rename(NodeId parent, std::string name, NodeId new_parent, std::string new_name, unsigned flags,
                        Caller caller, Reply<void> reply) = 0;

    // `flags`: those of open(2).
    virtual void create_file(NodeId parent, std::string name, int flags, Caller caller, Reply<CreatedFile> reply) = 0;
    virtual void open(NodeId node, int flags, Caller caller, Reply<OpenedFile> reply) = 0;
    virtual void read(HandleId handle, std::uint64_t offset, std::size_t size, Reply<Payload> reply) = 0;
    virtual void write(HandleId handle, std::uint64_t offset, WriteData data, Caller caller, Reply<void> reply) = 0;
    virtual void flush(HandleId handle, Caller caller, Reply<void> reply) = 0;
    virtual void fsync(HandleId handle, Reply<void> reply) = 0;
    // The reply comes when the handle is gone; a failure has already been logged.
    virtual void release(HandleId handle, Reply<void> reply) = 0;
    // The kernel did not take the reply that named the handle: the process that asked was killed, and never had it.
    virtual void disown(HandleId handle) {
        release(handle, [](const Status& /*logged*/) {});
    }

    virtual void open_directory(NodeId node, Reply<HandleId> reply) = 0;
    // Up to `max_entries` entries from `offset` (0: the beginning), "." and ".." included; empty at the end.
    virtual void read_directory(HandleId handle, std::uint64_t offset, std::size_t max_entries, bool with_attributes,
                                Reply<std::vector<DirectoryEntry>> reply) = 0;
    // Replies once what was removed from the directory is gone, or with the reason why it is not.
    virtual void sync_directory(NodeId node, Reply<void> reply) = 0;
    virtual void release_directory(HandleId handle) = 0;

    [[nodiscard]] virtual struct statvfs statfs() const = 0;
};

}  // namespace ckptfs::fs
