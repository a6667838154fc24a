// SPDX-License-Identifier: Apache-2.0
// Opening, reading, writing and closing files.
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
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/executors.h"
#include "base/mutex.h"
#include "base/owned_timers.h"
#include "fs/file_counters.h"
#include "fs/files/close_rule.h"
#include "fs/files/live_logs.h"
#include "fs/gate/commit_gate.h"
#include "fs/names/lookups.h"
#include "fs/state/handles.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

// The error of a version that a killed writer left half-written.
[[nodiscard]] Error lost_error(const FileWriter& writer);
[[nodiscard]] Failure bad_handle();

// Why a version is published, and for a close also the process that closes.
struct CommitCause {
    // Implicit, as most commits are not caused by a close.
    CommitCause(CommitReason why, pid_t closes = kUnseenProcess) : reason(why), closing(closes) {}

    CommitReason reason;
    pid_t closing;
};

class OpenFiles {
public:
    OpenFiles(SharedState& state, Lookups& lookups, CommitGate& gate)
        : state_(state),
          lookups_(lookups),
          gate_(gate),
          live_logs_(state,
                     [this](const NodePtr& node, const std::shared_ptr<FileWriter>& writer, Reply<void> ended) {
                         commit_in_order(node, writer, CommitReason::kPublish, std::move(ended));
                     }),
          waits_(state.env.timer) {
        state_.env.codec.when_tables_are_short([this] { give_up_tables(); });
    }
    // `waits_` stops first, since inspections and waits start each other.
    ~OpenFiles() {
        state_.env.codec.when_tables_are_short(nullptr);
        waits_.stop();
    }
    OpenFiles(const OpenFiles&) = delete;
    OpenFiles& operator=(const OpenFiles&) = delete;

    void create(NodeId parent, std::string name, int flags, Caller caller, Reply<CreatedFile> reply);
    void open(NodeId node, int flags, Caller caller, Reply<OpenedFile> reply);
    void read(HandleId handle, std::uint64_t offset, std::size_t size, Reply<Payload> reply);
    void write(HandleId handle, std::uint64_t offset, WriteData data, Caller caller, Reply<void> reply);
    [[nodiscard]] bool is_for_writing(HandleId handle) const {
        const HandlePtr found = handles_.find(handle);
        return found != nullptr && writes(found->flags);
    }
    void flush(HandleId handle, const Caller& caller, Reply<void> reply);
    void fsync(HandleId handle, Reply<void> reply);
    void release(HandleId handle, Reply<void> reply);
    // Releases a handle that no process ever had.
    void disown(HandleId handle);
    void truncate(NodeId node, std::optional<HandleId> handle, std::uint64_t size, Reply<Attributes> reply);
    // The process of the thread, if attributes() of the node depends on it; found out without the table's lock.
    [[nodiscard]] std::optional<pid_t> process_to_tell_by(NodeId node, pid_t thread) const;
    // Attributes of the version behind the handle, if it is given; else of the version that the process opened last.
    [[nodiscard]] Attributes attributes(const NodeTable::Lock& lock, const Node& node, std::optional<HandleId> handle,
                                        std::optional<pid_t> process = {}) const REQUIRES(node_table);

    // Publishes what was written to the node so far, and notes the new version in the node. Waits for other changes of
    // the key; the caller must hold no place in the key order.
    void commit_in_order(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, const CommitCause& cause,
                         Reply<void> reply);
    // As above, for a caller that is first in the key order. A failure is replied at once. `ended` is called when
    // nothing is in flight; a success may be replied later, once the kernel has dropped the pages of the version
    // before. `permit`: for a commit marker.
    void commit(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, const CommitCause& cause,
                const PublishPermit& permit, Reply<void> reply, std::function<void()> ended);
    // Whether a process other than `except` that answers for unsaved data is being killed, with its own FLUSH still to
    // come.
    [[nodiscard]] bool is_left_half(const Node& node, const WrittenVersion& version,
                                    pid_t except = kUnseenProcess) const;
    // For a file whose name is removed: publishes nothing more of it, and waits until nothing of it is in flight. Its
    // handles stay open; where the writer is readable, they read what was written. On the blocking executor only.
    void orphan(const std::shared_ptr<FileWriter>& writer);

    // Called before `source_key` is published as a commit marker: commits the other files being written below the
    // marker's directory, and asks whether anything there has failed, on any mount.
    void allow_marker(const std::string& marker_key, const std::string& source_key, Reply<StillCounts> reply);

    // Changes that draining waits for, as for a writer: a rename copies for as long as its objects are large, a removal
    // may wait for a rename or for a batch, and their callers may be gone.
    enum class NameChange : std::uint8_t { kRename, kRemoval };
    void change_begins(NameChange change, const std::string& name);
    void change_ends(NameChange change, const std::string& name);

    void drain(Reply<void> reply);
    void disconnected();
    // Ends versions that were open under a name which a rename has moved: what they hold can no longer be published.
    void end_versions(const std::vector<NodePtr>& overtaken);

    [[nodiscard]] std::vector<UploadProgress> uploads() const;
    [[nodiscard]] std::vector<ReadProgress> reads() const;
    [[nodiscard]] std::vector<std::string> renames() const;
    [[nodiscard]] FileStatistics statistics() const;
    // Keys of files that were given up because the connection to the kernel ended before they were closed.
    [[nodiscard]] std::vector<std::string> cut_off() const;
    std::vector<std::string> abandon(Reply<void> ended);

private:
    static constexpr int kInspections = 4;
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
    [[nodiscard]] static Milliseconds release_wait(int waits) { return Milliseconds(std::int64_t{1} << waits); }

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
        std::optional<bool> is_of_lock_file;
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
    void give_up_attempts(const std::vector<NodePtr>& versions);

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
    [[nodiscard]] bool has_others(const Node& node) const;
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
    static void end_passing_through(const NodeTable::Lock& lock, Handle& handle) REQUIRES(node_table);
    static void note_open_to_write(const NodeTable::Lock& lock, const OpenRequestPtr& request) REQUIRES(node_table);

    // --- open_files_reading.cc
    void open_for_reading(const OpenRequestPtr& request);
    void reader_opened(const OpenRequestPtr& request, Result<std::shared_ptr<FileReader>> reader);
    ObjectVersion version_read_by(const FileReader& reader);
    Result<OpenedFile> change_node(const NodeTable::Lock& lock, OpenRequest& request,
                                   const std::shared_ptr<FileReader>& reader) REQUIRES(node_table);
    // This mount has committed or renamed the file since the store was asked: the answer may be about an older version.
    [[nodiscard]] bool is_outdated(const NodeTable::Lock&, OpenRequest& request) const REQUIRES(node_table);
    // The writer that serves the handle's reads, if it reads changes; null where it reads from the bucket.
    [[nodiscard]] std::shared_ptr<FileWriter> changing(Handle& handle);
    static void begin_reading(const NodeTable::Lock&, Handle& handle) REQUIRES(node_table);
    // Drops the handle's reader if it reads another version than the node's committed one.
    static void forget_earlier_reader(const NodeTable::Lock&, Handle& handle) REQUIRES(node_table);
    // The handle has read a version that a commit of this mount has replaced since.
    static bool is_of_earlier_version(const NodeTable::Lock& lock, Handle& handle) REQUIRES(node_table);
    // Frees the seek tables of closed files, which are kept as long as there is room, since an open then costs only a
    // HEAD.
    void give_up_tables();
    struct Reading {
        HandlePtr handle;
        std::uint64_t offset = 0;
        std::size_t size = 0;
        // How often this read was started again with another reader or writer, at most kMostReopens.
        int reopens = 0;
        Reply<Payload> reply;
        // Node::rewrites as of the version that is being opened.
        std::uint64_t rewrites = 0;
    };
    // Reads from the writer that makes changes, or from the bucket.
    void read_what_is_seen(const std::shared_ptr<Reading>& reading);
    void read_with(const std::shared_ptr<Reading>& reading);
    bool reopen_and_read(const std::shared_ptr<Reading>& reading, const std::shared_ptr<FileReader>& reader);
    void reopened(const std::shared_ptr<Reading>& reading, const std::string& key,
                  Result<std::shared_ptr<FileReader>> opened);
    void read_after_commit(const std::shared_ptr<Reading>& reading, const std::shared_ptr<FileReader>& reader,
                           const std::string& key, Error error);
    [[nodiscard]] static bool is_unreadable(const Handle& handle);
    // The read begins beyond the end of the version that the handle reads through the page cache.
    [[nodiscard]] bool is_behind_the_end(const Reading& reading, const FileReader& reader);
    // The file has grown since it was opened, and has lost its name: the added bytes cannot be fetched.
    [[nodiscard]] bool is_out_of_reach(Handle& handle, const FileReader& reader);
    [[nodiscard]] Failure nothing_to_read(const Handle& handle) const;
    // The file has no bytes: nothing was written or lost, and nothing, or an empty version, is committed.
    [[nodiscard]] bool is_pristine(const Handle& handle) const;

    // --- open_files_writing.cc
    // The change failed because the file was removed meanwhile: it counts as done, as one after the removal does.
    [[nodiscard]] static bool is_lost_with_its_name(const Status& changed, const Node& node);
    // Refuses a change by a handle whose file its process has replaced since; the handle's close fails, too.
    [[nodiscard]] static Failure refuse_given_up(Handle& handle);
    // Returns the handle to write through: the handle that the kernel calls `id` may get another version for the write.
    [[nodiscard]] Result<HandlePtr> before_writing(HandleId id, HandlePtr handle, bool may_append = true);
    // Creates a version that takes the name, for a handle that the kernel has, or gets, on this node.
    [[nodiscard]] HandlePtr own_version(const NodeTable::Lock& lock, const Handle& opened) REQUIRES(node_table);
    // Number of other writable handles that `process` opened on the same inode with the same access mode.
    [[nodiscard]] int count_other_handles(const Handle& handle, pid_t process) const;
    void note_writer(Handle& handle, const Caller& caller) const;
    void changes_in_place(Node& node);

    // --- open_files_committing.cc
    struct Grown {
        NodePtr node;
        // Where the version that the node has shown until now ends; 0 if the new one does not just continue it.
        std::uint64_t from = 0;
    };
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
    // Whether, at the last writable handle's release, the file was truncated again since all of it was saved.
    [[nodiscard]] bool is_truncated_again(const Handle& handle) const;
    void commit_once_more(const NodePtr& node, const std::shared_ptr<FileWriter>& writer,
                          const std::shared_ptr<WrittenVersion>& version, Reply<void> reply,
                          std::function<void()> ended);
    // The node's version is committed: notes that it has cut away what earlier versions held when it was opened.
    void replace_earlier_versions(const NodePtr& node, const CommittedObject& object);
    struct Change {
        // The writer had something to save, though it may be what was there before.
        bool is_made = false;
        bool only_appended = false;
    };
    // Calls `dropped` when the kernel has dropped the pages of the version before, or a second later.
    void note_committed(const NodePtr& node, const CommittedObject& object, Change change,
                        std::function<void()> dropped);
    // Sets the node's version; returns the nodes that follow it.
    std::vector<Grown> note_version(const NodeTable::Lock& lock, const NodePtr& node, const ObjectVersion& version,
                                    bool only_appended) REQUIRES(node_table);

    // --- open_files_pages.cc
    // Drops the kernel's pages of the node if it has cached readers: for a change that came by another inode.
    void show_to_cached_readers(const Node& node);
    // Drops the follower's pages from `grown.from` on, then shows it the appended bytes, if it still follows.
    void show_growth(const Grown& grown, const ObjectVersion& shown, const std::shared_ptr<const void>& drops);
    void drop_written_pages(const NodePtr& node, const FileWriter& writer);
    void drop_pages_between_reads(const NodePtr& node);
    // Wraps the reply to a read that may go beyond the end, from which the kernel learns the end.
    [[nodiscard]] Reply<Payload> noted_across_end(const NodePtr& node, std::uint64_t end, Reply<Payload> reply);

    // --- open_files_closing.cc
    struct Closing;
    struct Written {
        NodePtr node;
        std::shared_ptr<FileWriter> writer;
    };
    // Null if the writer is not, or no longer, that of the node.
    [[nodiscard]] std::shared_ptr<WrittenVersion> written_version_of(const NodePtr& node,
                                                                     const std::shared_ptr<FileWriter>& writer) const;
    void complete_facts(const Closing& closing, CloseFacts& facts) const;
    void decide_later(const std::shared_ptr<Closing>& closing);
    [[nodiscard]] static bool waits_for_others(const Closing& closing, const CloseFacts& facts);
    [[nodiscard]] bool must_look_again(const std::shared_ptr<Closing>& closing, const CloseFacts& facts,
                                       const CloseDecision& decision);
    void decide_and_close(const std::shared_ptr<Closing>& closing);
    // What an fsync(2) by this handle has to commit.
    [[nodiscard]] Written written_behind(const Handle& handle) const;
    enum class EndOfFile : std::uint8_t { kFailed, kHeldBack };
    void note_let_go(const Handle& handle) const;
    void release_writer(const HandlePtr& handle, const Reply<void>& reply);
    [[nodiscard]] static ReleaseAction decide_last_release(const Handle& handle);
    void finish_release(const HandlePtr& handle, Status saved, const Reply<void>& reply);

    // --- open_files_failures.cc
    // Notes the writer's first failure once it comes: from then on, commit markers have to wait for the file.
    void watch(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, pid_t opener,
               EndOfFile end = EndOfFile::kFailed);
    [[nodiscard]] bool has_lost_its_name(const NodeTable::Lock& lock, const Node& node) const REQUIRES(node_table);
    // The key under which other mounts look for the file.
    [[nodiscard]] std::string key_of_failure(const Node& node, const FileWriter& writer) const;
    void note_failed(const Node& node, const FileWriter& writer, pid_t opener, const Error& error);
    // Calls `answer` when other mounts can see the failure and nothing of the file is left in the store, after
    // FailedSiblings::kLongestWait at the latest.
    void answer_failed(const Handle& handle, const Error& error, std::function<void()> answer);
    // Gives up the version of a killed writer: publishes nothing, and logs that.
    void abort_killed(const Handle& handle, std::function<void()> ended);
    void give_up(const Handle& handle, const Error& why, EndOfFile end, std::function<void()> ended);

    // --- open_files_status.cc
    // Of the versions that the kernel knows by the node's inode, the one that the process opened last; null for none.
    [[nodiscard]] NodePtr opened_last(const NodeTable::Lock& lock, const Node& node, pid_t process) const
        REQUIRES(node_table);

    // --- open_files_end.cc
    void release_cut_off(const HandlePtr& handle, const Reply<void>& reply);
    void answer_drain();
    // Ends the uploads of files with nothing to save that the kernel will not release any more.
    void end_unreleased(const std::vector<std::shared_ptr<FileWriter>>& writers);
    // Around the removal of what a failed or killed writer's file left in the store: draining waits for it.
    void abort_begins();
    void abort_ends();
    void drain_after_abort(const std::shared_ptr<FileWriter>& writer);

    SharedState& state_;
    Lookups& lookups_;
    CommitGate& gate_;
    HandleTable handles_;
    mutable std::atomic<bool> told_of_unseen_writers_ = false;
    FileCounters counters_;

    // Threads that were answered ESTALE for a name that they wanted to truncate, the latest last.
    struct Retry {
        pid_t thread = 0;
        NodeId parent = 0;
        std::string name;
        SteadyTime since{};
    };
    std::deque<Retry> retries_ GUARDED_BY(node_table);
    Mutex first_write_mutex_;

    mutable Mutex drain_mutex_;
    std::multiset<std::pair<NameChange, std::string>> changes_ GUARDED_BY(drain_mutex_);
    int aborts_ GUARDED_BY(drain_mutex_) = 0;
    std::set<std::shared_ptr<FileWriter>> unreleased_ GUARDED_BY(drain_mutex_);
    std::vector<std::string> cut_off_ GUARDED_BY(drain_mutex_);
    std::vector<Reply<void>> waiting_for_drain_ GUARDED_BY(drain_mutex_);

    // Declared last: these run code that uses everything above.
    LiveLogs live_logs_;
    // Waits for requests that the kernel sends a moment later.
    OwnedTimers waits_;
    // Inspects in /proc what processes hold: milliseconds for one with thousands of descriptors. One task for each
    // close that the kernel waits for.
    const std::unique_ptr<Executor> inspections_ = make_blocking_executor(kInspections);
};

}  // namespace ckptfs::fs
