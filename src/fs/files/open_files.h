// SPDX-License-Identifier: Apache-2.0
// Opening, writing and truncating files. They are read by FileReads, and closed by FileCloses.
//
// open() compares the node's version with what the bucket holds at that moment. If another one is there, or if a file
// is to be written that others read, the name gets a new node and open() fails with ESTALE, upon which the kernel looks
// the name up again and opens the new node. So a reader never sees two versions, whether it reads or maps, and never
// loses its version because of a writer. A reader that opens after the writer sees the changes as they are made.
//
// Threads: all functions may be called from any thread; nothing here blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/owned_timers.h"
#include "fs/file_counters.h"
#include "fs/files/file_closes.h"
#include "fs/files/file_commits.h"
#include "fs/files/file_failures.h"
#include "fs/files/file_reads.h"
#include "fs/files/kernel_pages.h"
#include "fs/files/live_logs.h"
#include "fs/names/lookups.h"
#include "fs/state/handles.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class OpenFiles {
public:
    OpenFiles(SharedState& state, Lookups& lookups, HandleTable& handles, FileCounters& counters, KernelPages& pages,
              FileFailures& failures, FileCommits& commits, FileCloses& closes)
        : state_(state),
          lookups_(lookups),
          handles_(handles),
          counters_(counters),
          pages_(pages),
          failures_(failures),
          commits_(commits),
          closes_(closes),
          live_logs_(state,
                     [this](const NodePtr& node, const std::shared_ptr<FileWriter>& writer, Reply<void> ended) {
                         commits_.commit_in_order(node, writer, CommitReason::kPublish, std::move(ended));
                     }),
          waits_(state_.env.timer) {
        state_.env.codec.when_tables_are_short([this] { give_up_tables(); });
    }
    ~OpenFiles() { state_.env.codec.when_tables_are_short(nullptr); }
    OpenFiles(const OpenFiles&) = delete;
    OpenFiles& operator=(const OpenFiles&) = delete;

    void create(NodeId parent, std::string name, int flags, Caller caller, Reply<CreatedFile> reply);
    void open(NodeId node, int flags, Caller caller, Reply<OpenedFile> reply);
    void write(HandleId handle, std::uint64_t offset, WriteData data, Caller caller, Reply<void> reply);
    void truncate(NodeId node, std::optional<HandleId> handle, std::uint64_t size, Reply<Attributes> reply);

private:
    // How often an open(2) looks for the version that has the name, while other mounts replace it.
    static constexpr int kMostAttempts = 10;
    // How often an open waits for the RELEASE of a closed file: RELEASE follows the reply to close(2), and the next
    // call for the file may overtake it. The delay was not measured: chosen well above a wakeup.
    static constexpr int kReleaseWaits = 7;
    // As above, for O_TRUNC. Fewer, as programs that write a name again while they hold it open are not rare.
    static constexpr int kTruncationWaits = 3;
    // Most bytes that the first write after O_TRUNC replaces of a file that keeps its node. Far below what the first
    // part holds, within which a file may be written out of order.
    static constexpr std::uint64_t kMostOverwritten = std::uint64_t{1} << 20;
    // Others wrote to the file each time while it was asked whether it is a lock file.
    static constexpr int kMostLockQuestions = 16;
    [[nodiscard]] static Milliseconds release_wait(int waits) { return Milliseconds(std::int64_t{1} << waits); }

    // Whether a file is a lock file, in the state in which that was asked: another process may take the lock, and write
    // its ID, while /proc/locks is read.
    struct LockFileAnswer {
        NodePtr node;
        std::shared_ptr<WrittenVersion> version;
        std::uint64_t written = 0;
        bool is_lock_file = false;
        int times_asked = 0;
    };

    struct OpenRequest {
        NodePtr node;
        int flags = 0;
        pid_t thread = 0;
        ReadPace pace = ReadPace::kFull;
        // An open with O_TRUNC by this thread was answered ESTALE for this name before.
        bool is_second_try = false;
        // The process that opens; 0 where it cannot be seen.
        pid_t opener = 0;
        // Made for truncate(2), whose request names no caller.
        bool is_by_name = false;
        // The caller was told to look the name up again, and did.
        bool expected = false;
        // When the store was last asked, at first when the open began; then the node's key and committed ETag at that
        // time.
        SteadyTime asked{};
        std::string key;
        std::string etag;
        // Another version was found, and the node's writer has checked whether it is its own.
        bool is_settled = false;
        // The version that was asked for is gone: the next request accepts any version.
        bool is_gone = false;
        // The reader for which a backing file was asked, and that file, which the kernel may read instead; null if
        // none.
        std::shared_ptr<FileReader> asked_for_backing;
        std::shared_ptr<BackingFile> backing;
        // The version was found with another size than the node's, and is read once more.
        bool is_read_anew = false;
        int attempts = 0;
        // How often this open has waited for the RELEASE of a file that was closed before.
        int waits = 0;
        // For O_TRUNC of a file that others have open: whether it is a lock file; empty until that is asked.
        std::optional<LockFileAnswer> lock_file;
        Reply<OpenedFile> reply;
    };
    using OpenRequestPtr = std::shared_ptr<OpenRequest>;

    // --- open_files.cc
    [[nodiscard]] Status may_write() const;
    Result<CreatedFile> make_file(const NodeTable::Lock& lock, OpenRequest& request, const NodePtr& parent,
                                  const std::string& name) REQUIRES(node_table);
    [[nodiscard]] static bool may_be_released(const FileWriter& writer, const OpenRequest& request);
    void open_for_writing(const OpenRequestPtr& request);
    void write_version_found(const OpenRequestPtr& request, const ObjectInfo& object, Result<ObjectContent> content);
    void base_found(const OpenRequestPtr& request, Result<ObjectInfo> object);
    // Calls `run` once the change of the node's name that is under way ends; false, without calling it, if none is.
    [[nodiscard]] bool waits_for_its_name(const NodeTable::Lock& lock, const Node& node, std::function<void()> run)
        REQUIRES(node_table);
    [[nodiscard]] bool opens_later(const NodeTable::Lock& lock, NodeId id, int flags, const Caller& caller,
                                   const Reply<OpenedFile>& reply) REQUIRES(node_table);
    // `added`: set to the handle, which may no longer be found by its number if the mount ends.
    OpenedFile add_handle(const NodeTable::Lock& lock, const OpenRequest& request, std::shared_ptr<FileWriter> writer,
                          const std::shared_ptr<FileReader>& reader, HandlePtr* added = nullptr) REQUIRES(node_table);
    OpenedFile add_handle_on_other_version(const NodeTable::Lock& lock, const OpenRequest& request,
                                           const std::shared_ptr<FileReader>& reader) REQUIRES(node_table);
    [[nodiscard]] bool wants_direct_io(int flags) const;
    [[nodiscard]] pid_t opener(const Caller& caller, int flags) const;

    // --- open_files_versions.cc
    // Whether the node may take the version that has the name now: the kernel has already repeated the lookup, which it
    // does only once, and the node is not open.
    [[nodiscard]] static bool may_take_version(const NodeTable::Lock& lock, const OpenRequest& request)
        REQUIRES(node_table);
    void take_version(const NodeTable::Lock& lock, const OpenRequest& request, const ObjectVersion& version,
                      std::shared_ptr<FileReader> reader) REQUIRES(node_table);
    // The name holds another version than the node: links a new node for it and returns the error to reply.
    Failure give_new_node(const NodeTable::Lock& lock, const NodePtr& node, const ObjectVersion& version,
                          std::shared_ptr<FileReader> reader, ExpectedOpen expected) REQUIRES(node_table);
    // As above, for a writer of a file that others read.
    Failure give_writers_node(const NodeTable::Lock& lock, const NodePtr& node, ExpectedOpen expected, int flags)
        REQUIRES(node_table);
    // Whether the thread was told to open this node; the expectation is used up.
    [[nodiscard]] bool take_expected(const NodeTable::Lock&, Node& node, pid_t thread, bool writes) const
        REQUIRES(node_table);
    // Another node has the name by now, and the kernel will find it. `found_etag`: ETag of what this open has found in
    // the bucket.
    void expect_again(const NodeTable::Lock& lock, const OpenRequest& request, const std::string& found_etag = "")
        REQUIRES(node_table);
    [[nodiscard]] bool is_served_as_looked_up(const NodeTable::Lock& lock, const OpenRequest& request) const
        REQUIRES(node_table);
    [[nodiscard]] ExpectedOpen expectation(const OpenRequest& request) const;
    Failure not_found_or(const NodeTable::Lock& lock, const NodePtr& node, Error error) REQUIRES(node_table);
    void give_up_attempts_before(const Handle& handle) const;

    // --- open_files_truncating.cc
    void open_for_truncating(const OpenRequestPtr& request);
    void truncate_now(const OpenRequestPtr& request);
    // `renamed`: set to the name that got another node.
    Result<OpenedFile> open_truncated(const NodeTable::Lock& lock, OpenRequest& request, bool keeps_node,
                                      std::optional<NameInDirectory>& renamed) REQUIRES(node_table);
    OpenedFile join_truncated(const NodeTable::Lock& lock, const OpenRequest& request, HandlePtr* joined = nullptr)
        REQUIRES(node_table);
    // Whether O_TRUNC keeps the node of a file that others have open: only an empty file, so that they lose nothing.
    [[nodiscard]] static bool keeps_its_node(const Node& node) REQUIRES(node_table);
    [[nodiscard]] bool is_lock_file(const NodePtr& node);
    // Whether it has to be asked whether the file is a lock file: the request then has the file's state.
    [[nodiscard]] bool asks_for_locks(const NodeTable::Lock& lock, OpenRequest& request) REQUIRES(node_table);
    [[nodiscard]] bool has_others(const Node& node) const;
    [[nodiscard]] static bool is_of_lock_file(const NodeTable::Lock& lock, const OpenRequest& request)
        REQUIRES(node_table);
    // The node that has the name which `node` has or had; null if none has.
    [[nodiscard]] NodePtr named_now(const NodeTable::Lock& lock, const NodePtr& node) const REQUIRES(node_table);
    [[nodiscard]] static bool may_be_lock_file(const NodeTable::Lock& lock, const Node& node) REQUIRES(node_table);
    // Notes which version the name was believed to hold when an open truncated `node`.
    static void note_believed_version(const NodeTable::Lock& lock, Node& node) REQUIRES(node_table);
    // Whether the thread was answered ESTALE for the name before: the kernel then looks it up, asks once more, and
    // gives up.
    [[nodiscard]] bool is_second_try(const NodeTable::Lock& lock, pid_t thread, NodeId parent, std::string_view name)
        REQUIRES(node_table);
    void expect_second_try(const NodeTable::Lock& lock, const OpenRequest& request) REQUIRES(node_table);
    [[nodiscard]] static bool waits_for_release(const NodeTable::Lock& lock, const OpenRequest& request)
        REQUIRES(node_table);
    void prepare_second_try(const NodeTable::Lock& lock, const OpenRequest& request) REQUIRES(node_table);
    void truncate_by_name(NodeId node, std::uint64_t size, int waits, Reply<Attributes> reply);
    [[nodiscard]] Result<std::optional<HandleId>> open_by_name(const NodeTable::Lock& lock, const NodePtr& node,
                                                               std::uint64_t size) REQUIRES(node_table);
    void set_size(HandleId id, HandlePtr handle, std::uint64_t size, const Reply<Attributes>& reply);

    // --- open_files_appending.cc
    // Whether the handle may have to append to another version, which has taken the name since.
    [[nodiscard]] static bool may_append_elsewhere(const Handle& handle);
    // A later version of the name, which cut this one away, was saved: it gets what the handle appends.
    [[nodiscard]] static bool appends_to_what_is_cut_away(const Handle& handle);
    [[nodiscard]] Result<HandlePtr> open_what_has_the_name(const NodeTable::Lock& lock, const Handle& earlier)
        REQUIRES(node_table);
    // Returns the handle to append through: the same one if it stays with its version.
    [[nodiscard]] Result<HandlePtr> append_to_later_version(HandleId id, const HandlePtr& handle);
    // Whether the handle's appends go to a later version, saved or being written.
    [[nodiscard]] bool appends_to_a_later_version(const NodeTable::Lock& lock, const Handle& handle) const
        REQUIRES(node_table);
    [[nodiscard]] bool may_be_joined(const NodeTable::Lock& lock, const Node& later, const Node& earlier) const
        REQUIRES(node_table);
    // True if the node has been created or truncated, nothing was written since, and that is not committed.
    [[nodiscard]] static bool is_only_truncated(const Node& node) REQUIRES(node_table);

    // --- open_files_passthrough.cc
    [[nodiscard]] bool asks_for_backing(const OpenRequest& request, const std::shared_ptr<FileReader>& reader) const;
    void ask_for_backing(const OpenRequestPtr& request, const std::shared_ptr<FileReader>& reader);
    // Lets a handle that only reads read past this process, if it can or must.
    void pass_through(const NodeTable::Lock& lock, const OpenRequest& request,
                      const std::shared_ptr<FileReader>& reader, Handle& handle, OpenedFile& opened)
        REQUIRES(node_table);
    static void note_open_to_write(const NodeTable::Lock& lock, const OpenRequestPtr& request) REQUIRES(node_table);

    // --- open_files_reading.cc
    void open_for_reading(const OpenRequestPtr& request);
    void reader_opened(const OpenRequestPtr& request, Result<std::shared_ptr<FileReader>> reader);
    ObjectVersion version_read_by(const FileReader& reader);
    Result<OpenedFile> change_node(const NodeTable::Lock& lock, OpenRequest& request,
                                   const std::shared_ptr<FileReader>& reader) REQUIRES(node_table);
    // This mount has committed or renamed the file since the store was asked: the answer may be about an older version.
    [[nodiscard]] bool is_outdated(const NodeTable::Lock&, OpenRequest& request) const REQUIRES(node_table);
    // Frees the seek tables of closed files, which are kept as long as there is room, since an open then costs only a
    // HEAD.
    void give_up_tables();

    // --- open_files_writing.cc
    // The change failed because the file was removed meanwhile: it counts as done, as one after the removal does.
    [[nodiscard]] static bool is_lost_with_its_name(const Status& changed, const Node& node);
    // Returns the handle to write through: the handle that the kernel calls `id` may get another version for the write.
    [[nodiscard]] Result<HandlePtr> before_writing(HandleId id, HandlePtr handle, bool may_append = true);
    // Creates a version that takes the name, for a handle that the kernel has, or gets, on this node.
    [[nodiscard]] HandlePtr own_version(const NodeTable::Lock& lock, const Handle& opened) REQUIRES(node_table);
    void note_writer(Handle& handle, const Caller& caller) const;
    void changes_in_place(Node& node);

    SharedState& state_;
    Lookups& lookups_;
    HandleTable& handles_;
    FileCounters& counters_;
    KernelPages& pages_;
    FileFailures& failures_;
    FileCommits& commits_;
    FileCloses& closes_;
    mutable std::atomic<bool> told_of_unseen_writers_ = false;

    // Threads that were answered ESTALE for a name that they wanted to truncate, the latest last.
    struct Retry {
        pid_t thread = 0;
        NodeId parent = 0;
        std::string name;
        SteadyTime since{};
    };
    std::deque<Retry> retries_ GUARDED_BY(node_table);
    // Declared last: these run code that uses everything above.
    LiveLogs live_logs_;
    // Waits for requests that the kernel sends a moment later.
    OwnedTimers waits_;
};

}  // namespace ckptfs::fs
