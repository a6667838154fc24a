// SPDX-License-Identifier: Apache-2.0
// Open files.
//
// Ownership: the table owns a handle from open to release; requests under way share it.
// Threads: the table guards itself. A handle's own mutex is a leaf.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "fs/file_operations.h"
#include "fs/passthrough.h"
#include "fs/state/nodes.h"

namespace ckptfs::fs {

// `flags`: those of open(2).
inline bool writes(int flags) {
    return (flags & O_ACCMODE) != O_RDONLY;
}

struct Handle {
    Handle() = default;
    Handle(std::shared_ptr<FileReader> its_reader, ReadPace its_pace)
        : pace(its_pace),
          reader(std::move(its_reader)),
          stream(reader != nullptr ? reader->open_stream(pace) : nullptr) {}

    // The flags of open(2).
    int flags = 0;
    NodePtr node;
    pid_t opener = 0;
    // Inode number by which the kernel knows the handle: not that of `node` if the handle has a version of its own.
    std::uint64_t inode = 0;
    // `inode` is not that of `node`, which a write is to know without locking the table. Set once, before other threads
    // find the handle.
    bool has_earlier_inode = false;
    // When the handle truncated the file; 0 if it did not.
    WrittenVersion::Moment truncated_at = 0;
    // When the handle was opened. For one that did not truncate it shows whether it belongs to what another handle
    // truncated before.
    WrittenVersion::Moment opened_at = 0;
    // The handle was opened with O_TRUNC and has written nothing yet: its first write decides which version it goes to.
    std::atomic<bool> has_only_truncated = false;
    // No process ever had the handle.
    std::atomic<bool> is_disowned = false;
    // The handle is that of truncate(2) by name: no process holds it, and nothing is written by it. Set once at open.
    bool is_by_name = false;
    // The last process that closed the handle and went on: a mapping by it may outlive all descriptors, also where
    // another process opened the file. kUnseenProcess before that.
    std::atomic<pid_t> last_closer = kUnseenProcess;
    // The connection to the kernel ended before the RELEASE of this handle came.
    std::atomic<bool> is_cut_off = false;
    // The process that opened the handle has since truncated the name through another one, and has committed that or
    // writes it under a lock on the file.
    std::atomic<bool> is_given_up = false;
    // A write or truncation through this handle was refused because is_given_up is set.
    std::atomic<bool> was_refused = false;
    // Set once at open; empty for handles that only read.
    std::shared_ptr<FileWriter> writer;
    // The writer that serves reads of a file that is being changed, in place of `reader`. For a read-only handle the
    // first read decides what later ones see; a writable one has its own writer.
    std::shared_ptr<FileWriter> changing GUARDED_BY(node_table);
    // The handle has read something that was not saved.
    bool has_read_changes GUARDED_BY(node_table) = false;
    bool has_read GUARDED_BY(node_table) = false;
    // Node::rewrites at the open or the first read.
    std::uint64_t rewrites GUARDED_BY(node_table) = 0;
    // The kernel dropped its pages of the inode before the caller got this handle.
    bool dropped_pages GUARDED_BY(node_table) = false;
    // The handle was opened while an open for writing was on its way.
    bool may_change GUARDED_BY(node_table) = false;
    ReadPace pace = ReadPace::kFull;
    // `is_cached`: only reads, through the page cache or past this process. `is_passed_through`: past this process.
    bool is_cached GUARDED_BY(node_table) = false;
    bool is_passed_through GUARDED_BY(node_table) = false;
    // The handle reads a version that another mount put in place of the one being written here: it is no version of the
    // node.
    bool is_of_another_mount GUARDED_BY(node_table) = false;

    // Set once at open, with `writer`.
    std::shared_ptr<WrittenVersion> version;

    // The last thread that wrote, and the generation for which that is noted in `version`: in one word, as two threads
    // may note theirs at once.
    std::atomic<std::uint64_t> noted = VersionFate::kNever;

    // Where the last answered read ended, and when; for progress reports.
    std::atomic<std::uint64_t> read_until = 0;
    std::atomic<SteadyTime> last_read = SteadyTime{};

    Mutex mutex;
    std::shared_ptr<FileReader> reader GUARDED_BY(mutex);
    std::shared_ptr<ReadStream> stream GUARDED_BY(mutex);
};

using HandlePtr = std::shared_ptr<Handle>;

// The last handle that the kernel reads past this process takes the backing file with it.
inline void end_passing_through(const NodeTable::Lock& /*lock*/, Handle& handle) REQUIRES(node_table) {
    Node& node = *handle.node;
    if (std::exchange(handle.is_passed_through, false) && --node.passed_handles == 0) {
        node.backing.reset();
    }
}

[[nodiscard]] inline Failure bad_handle() {
    return failure(EBADF, "not an open file");
}

// Refuses a change by a handle whose file its process has replaced since; the handle's close fails, too.
[[nodiscard]] inline Failure refuse_given_up(Handle& handle) {
    handle.was_refused = true;
    return failure(ESTALE, handle.writer->key() + ": stale descriptor; this process has since replaced the file");
}

class HandleTable {
public:
    // Held while a first write, or an append, gives a handle another version, and while a handle is released: one of
    // them comes first.
    Mutex first_write;

    HandleId add(HandlePtr handle) {
        MutexLock lock(mutex_);
        const HandleId id = next_id_++;
        handles_.emplace(id, std::move(handle));
        return id;
    }

    // Null for a handle that was released.
    [[nodiscard]] HandlePtr find(HandleId id) const {
        MutexLock lock(mutex_);
        const auto found = handles_.find(id);
        return found == handles_.end() ? nullptr : found->second;
    }

    [[nodiscard]] std::vector<HandlePtr> all() const {
        MutexLock lock(mutex_);
        std::vector<HandlePtr> all;
        all.reserve(handles_.size());
        for (const auto& [id, handle] : handles_) {
            all.push_back(handle);
        }
        return all;
    }

    // Number of other writable handles that `process` opened on the same inode with the same access mode.
    [[nodiscard]] int count_others(const Handle& handle, pid_t process) const {
        const std::vector<HandlePtr> others = all();
        return static_cast<int>(std::count_if(others.begin(), others.end(), [&](const HandlePtr& other) {
            return other.get() != &handle && other->writer != nullptr && other->opener == process &&
                   other->inode == handle.inode && (other->flags & O_ACCMODE) == (handle.flags & O_ACCMODE);
        }));
    }

    [[nodiscard]] std::vector<HandleId> ids() const {
        MutexLock lock(mutex_);
        std::vector<HandleId> ids;
        ids.reserve(handles_.size());
        for (const auto& [id, handle] : handles_) {
            ids.push_back(id);
        }
        return ids;
    }

    // Requests under way keep the handle that they have found.
    void replace(HandleId id, HandlePtr handle) {
        MutexLock lock(mutex_);
        handles_[id] = std::move(handle);
    }

    HandlePtr remove(HandleId id) {
        MutexLock lock(mutex_);
        const auto found = handles_.find(id);
        if (found == handles_.end()) {
            return nullptr;
        }
        HandlePtr handle = std::move(found->second);
        handles_.erase(found);
        return handle;
    }

private:
    mutable Mutex mutex_;
    HandleId next_id_ GUARDED_BY(mutex_) = 1;
    std::unordered_map<HandleId, HandlePtr> handles_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
