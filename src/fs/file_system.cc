// SPDX-License-Identifier: Apache-2.0
// Puts the parts together: each operation is forwarded to the part that implements it.
#include "fs/file_system.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/text.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"
#include "fs/files/extended_attributes.h"
#include "fs/files/file_reads.h"
#include "fs/files/file_status.h"
#include "fs/files/open_files.h"
#include "fs/gate/lost_changes.h"
#include "fs/gate/unfinished_files.h"
#include "fs/names/directories.h"
#include "fs/names/lookups.h"
#include "fs/names/special_nodes.h"
#include "fs/names/symlinks.h"
#include "fs/renames/guarded_names.h"
#include "fs/renames/renames.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

namespace {

// Errors that programs provoke and expect now and then. ECANCELED: the mount ends.
constexpr std::array kOrdinaryAnswers{ENOENT, EEXIST, ENOTEMPTY, ENOTDIR, EISDIR,       ESTALE,    EROFS,     ENODATA,
                                      EBADF,  EINVAL, EXDEV,     EBUSY,   ENAMETOOLONG, ECANCELED, EOPNOTSUPP};

// A program shows its user an errno at most; the log says which request failed, and what to do. What fails while a file
// is read or written is logged where it is found out.
template <class T>
Reply<T> logged(Reply<T> reply, int also_ordinary = 0) {
    return [reply = std::move(reply), also_ordinary](Result<T> answer) {
        if (!answer && answer.error().errno_value != also_ordinary &&
            std::find(kOrdinaryAnswers.begin(), kOrdinaryAnswers.end(), answer.error().errno_value) ==
                kOrdinaryAnswers.end()) {
            log_error(escaped(answer.error().message));
        }
        reply(std::move(answer));
    };
}

class AssembledFileSystem final : public FileSystem {
public:
    explicit AssembledFileSystem(FileSystemEnvironment environment)
        : state_(std::move(environment)),
          gate_(state_),
          repairs_(state_, gate_),
          batches_(state_),
          lookups_(state_, repairs_, batches_),
          directories_(state_, lookups_, repairs_, batches_),
          symlinks_(state_, lookups_, gate_),
          specials_(state_, lookups_),
          draining_(state_),
          pages_(state_),
          failures_(state_, counters_, pages_, draining_),
          commits_(state_, lookups_, gate_, handles_, counters_, pages_, draining_),
          closes_(state_, handles_, commits_, failures_, draining_),
          reads_(state_, handles_, counters_, pages_),
          status_(state_, handles_, counters_),
          open_files_(state_, lookups_, handles_, counters_, pages_, failures_, commits_, closes_),
          extended_(state_),
          renames_(state_, lookups_, directories_, commits_, failures_, gate_),
          links_(state_, lookups_, gate_),
          names_(state_, gate_, commits_, renames_, links_, symlinks_, directories_, specials_),
          unfinished_(state_) {}

    void lookup(NodeId parent, std::string name, const Caller& caller, Reply<Entry> reply) override {
        lookups_.lookup(parent, std::move(name), caller.thread, logged(std::move(reply)));
    }

    void forget(NodeId id, std::uint64_t lookups) override {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (const NodePtr node = state_.nodes.find(lock, id)) {
            state_.nodes.forget(lock, node, lookups);
        }
    }

    // A node is one version, so that its attributes need no request: a name that holds another version is found out by
    // lookup. A handle may have a version of its own.
    void getattr(NodeId id, std::optional<HandleId> handle, pid_t thread, Reply<Attributes> reply) override {
        const std::optional<pid_t> process = handle ? std::nullopt : status_.process_to_tell_by(id, thread);
        Result<Attributes> attributes = failure(ESTALE, "the file is gone");
        {
            const NodeTable::Lock lock = state_.nodes.lock();
            const NodePtr node = state_.nodes.find(lock, id);
            if (node != nullptr && !only_to_be_unlinked(lock, node)) {
                attributes = status_.attributes(lock, *node, handle, process);
            }
        }
        reply(std::move(attributes));
    }

    void setattr(NodeId node, std::optional<HandleId> handle, AttributeChange change,
                 Reply<Attributes> reply) override {
        bool is_there = true;
        {
            const NodeTable::Lock lock = state_.nodes.lock();
            const NodePtr found = state_.nodes.find(lock, node);
            is_there = found == nullptr || !only_to_be_unlinked(lock, found);
        }
        if (!is_there) {
            reply(failure(ESTALE, "the file failed, and nothing is left of it"));
        } else if (specials_.change(node, change)) {
            getattr(node, handle, 0, std::move(reply));
        } else if (change.size) {
            open_files_.truncate(node, handle, *change.size, std::move(reply));
        } else {
            getattr(node, handle, 0, std::move(reply));
        }
    }

    void get_extended(NodeId node, std::string_view name, Reply<std::string> reply) override {
        extended_.get(node, name, logged(std::move(reply)));
    }

    void remove_extended(NodeId node, std::string_view name, Reply<void> reply) override {
        extended_.remove(node, name, logged(std::move(reply)));
    }

    void list_extended(NodeId node, Reply<std::vector<std::string>> reply) override {
        extended_.list(node, std::move(reply));
    }

    void symlink(NodeId parent, std::string name, std::string target, Caller caller, Reply<Entry> reply) override {
        names_.symlink(parent, name, target, caller, logged(std::move(reply)));
    }

    void readlink(NodeId node, Reply<std::string> reply) override { symlinks_.read(node, logged(std::move(reply))); }

    void make_special(NodeId parent, std::string name, FileType type, mode_t mode, Caller caller,
                      Reply<Entry> reply) override {
        specials_.make(parent, std::move(name), type, SpecialAttributes{mode, caller.uid, caller.gid},
                       logged(std::move(reply)));
    }

    void link(NodeId node, NodeId new_parent, std::string new_name, Caller caller, Reply<Entry> reply) override {
        // Most programs try hard links first.
        names_.link(node, new_parent, new_name, caller, logged(std::move(reply), EPERM));
    }

    void mkdir(NodeId parent, std::string name, Reply<Entry> reply) override {
        directories_.mkdir(parent, std::move(name), logged(std::move(reply)));
    }

    void rmdir(NodeId parent, std::string name, Reply<void> reply) override {
        names_.rmdir(parent, name, counted(Draining::NameChange::kRemoval, name, std::move(reply)));
    }

    void unlink(NodeId parent, std::string name, Reply<void> reply) override {
        names_.unlink(parent, name, counted(Draining::NameChange::kRemoval, name, std::move(reply)));
    }

    void rename(NodeId parent, std::string name, NodeId new_parent, std::string new_name, unsigned flags, Caller caller,
                Reply<void> reply) override {
        names_.rename(parent, name, new_parent, new_name, flags, caller,
                      counted(Draining::NameChange::kRename, name, std::move(reply)));
    }

    void create_file(NodeId parent, std::string name, int flags, Caller caller, Reply<CreatedFile> reply) override {
        open_files_.create(parent, std::move(name), flags, caller, logged(std::move(reply)));
    }

    void open(NodeId node, int flags, Caller caller, Reply<OpenedFile> reply) override {
        open_files_.open(node, flags, caller, logged(std::move(reply)));
    }

    void read(HandleId handle, std::uint64_t offset, std::size_t size, Reply<Payload> reply) override {
        reads_.read(handle, offset, size, std::move(reply));
    }

    void write(HandleId handle, std::uint64_t offset, WriteData data, Caller caller, Reply<void> reply) override {
        open_files_.write(handle, offset, std::move(data), caller, std::move(reply));
    }

    void flush(HandleId handle, Caller caller, Reply<void> reply) override {
        if (state_.env.acknowledging != nullptr && closes_.is_heard(handle, caller)) {
            reply = [this, reply = std::move(reply)](Status closed) {
                reply(closed ? lost_.tell_close() : std::move(closed));
            };
        }
        closes_.flush(handle, caller, std::move(reply));
    }

    void fsync(HandleId handle, Reply<void> reply) override { closes_.fsync(handle, or_lost(std::move(reply))); }

    void release(HandleId handle, Reply<void> reply) override { closes_.release(handle, std::move(reply)); }
    void disown(HandleId handle) override { closes_.disown(handle); }

    void open_directory(NodeId node, Reply<HandleId> reply) override {
        directories_.open(node, logged(std::move(reply)));
    }

    void read_directory(HandleId handle, std::uint64_t offset, std::size_t max_entries, bool with_attributes,
                        Reply<std::vector<DirectoryEntry>> reply) override {
        directories_.read(handle, offset, max_entries, with_attributes, logged(std::move(reply)));
    }

    void sync_directory(NodeId node, Reply<void> reply) override {
        batches_.sync(node, or_lost(logged(std::move(reply))));
    }

    void release_directory(HandleId handle) override { directories_.release(handle); }

    [[nodiscard]] struct statvfs statfs() const override;

    void drain(Reply<void> reply) override {
        draining_.begin([this, reply = std::move(reply)](const Status& drained) {
            batches_.when_all_settled([this, reply, drained] {
                state_.failed.when_all_recorded([this, reply, drained] {
                    state_.deletes->when_idle([this, reply, drained] { send(drained, reply); });
                });
            });
        });
    }
    [[nodiscard]] std::vector<std::string> left_undone() override {
        std::vector<std::string> lines = batches_.not_made();
        for (const std::string& key : state_.failed.untold()) {
            lines.push_back(format("{}: other mounts were not told that it failed", key));
        }
        for (const std::string& key : draining_.cut_off()) {
            lines.push_back(format("saving {}: the mount ended before it was closed", key));
        }
        if (const std::string left = state_.env.acknowledging ? state_.env.acknowledging->left() : ""; !left.empty()) {
            lines.push_back(left);
        }
        return lines;
    }
    void disconnected() override { closes_.disconnected(); }
    void end_renames(const std::vector<std::string>& record_keys) override {
        for (const std::string& key : record_keys) {
            repairs_.holder_is_dead(key);
        }
    }
    void record_unfinished(UnfinishedFile file, Reply<void> reply) override {
        unfinished_.record(std::move(file), std::move(reply));
    }
    void recall_failure(const std::string& key, const std::string& record) override { unfinished_.recall(key, record); }
    void announced_by_others(const std::string& marker_key, const std::string& disk,
                             Reply<std::vector<std::uint64_t>> reply) override {
        gate_.announced_by_others(marker_key, disk, reply);
    }
    void may_mark(const std::string& marker_key, const AskedBy& by, Reply<void> reply) override {
        gate_.check_again(marker_key, by, std::move(reply));
    }
    void change_lost(const std::string& key, const Error& why) override { lost_.add(key, why); }
    void change_made_good(const std::string& key) override { lost_.made_good(key); }
    [[nodiscard]] std::vector<UploadProgress> uploads() const override { return status_.uploads(); }
    [[nodiscard]] std::vector<ReadProgress> reads() const override { return status_.reads(); }
    [[nodiscard]] FileStatistics statistics() const override {
        FileStatistics statistics = status_.statistics();
        statistics.files_failed += lost_.count();
        statistics.removals_under_way = batches_.under_way();
        statistics.name_changes_under_way = draining_.changes();
        statistics.failures_untold = state_.failed.untold().size();
        statistics.probes_store = state_.deletes->is_asking();
        return statistics;
    }
    [[nodiscard]] UnwrittenFiles unwritten(std::size_t most) const override { return state_.failed.unwritten(most); }
    [[nodiscard]] std::vector<std::string> renames() const override { return draining_.renames(); }
    std::vector<std::string> abandon(Reply<void> ended) override { return draining_.abandon(std::move(ended)); }

private:
    // Replies once what a disk has acknowledged is in the bucket.
    void send(const Status& drained, const Reply<void>& reply) {
        if (state_.env.acknowledging == nullptr) {
            reply(drained);
            return;
        }
        state_.env.acknowledging->when_sent([drained, reply](const Status& sent) { reply(drained ? sent : drained); });
    }

    // For fsync(2): a success becomes the failure of a change that is lost (LostChanges), if there is one.
    Reply<void> or_lost(Reply<void> reply) {
        if (state_.env.acknowledging == nullptr) {
            return reply;
        }
        return
            [this, reply = std::move(reply)](Status synced) { reply(synced ? lost_.tell_sync() : std::move(synced)); };
    }

    Reply<void> counted(Draining::NameChange change, const std::string& name, Reply<void> reply) {
        draining_.change_begins(change, name);
        return [this, change, name, reply = logged(std::move(reply))](Status changed) {
            reply(std::move(changed));
            draining_.change_ends(change, name);
        };
    }

    bool only_to_be_unlinked(const NodeTable::Lock& lock, const NodePtr& node) REQUIRES(node_table) {
        if (node->is_failed_name && node->linked) {
            lookups_.look_at_failed_name(lock, node);
        }
        return node->is_failed_name;
    }

    SharedState state_;
    CommitGate gate_;
    RenameRepairs repairs_;
    UnlinkBatches batches_;
    Lookups lookups_;
    Directories directories_;
    Symlinks symlinks_;
    SpecialNodes specials_;
    HandleTable handles_;
    FileCounters counters_;
    Draining draining_;
    KernelPages pages_;
    FileFailures failures_;
    FileCommits commits_;
    FileCloses closes_;
    FileReads reads_;
    FileStatus status_;
    OpenFiles open_files_;
    ExtendedAttributes extended_;
    Renames renames_;
    Links links_;
    GuardedNames names_;
    UnfinishedFiles unfinished_;
    LostChanges lost_;
};

// A bucket has no size: programs that look for room find plenty.
struct statvfs AssembledFileSystem::statfs() const {
    constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;
    constexpr std::uint64_t kPlenty = (std::uint64_t{1} << 60) / kBlock;
    struct statvfs plenty = {};
    plenty.f_bsize = kBlock;
    plenty.f_frsize = kBlock;
    plenty.f_blocks = kPlenty;
    plenty.f_bfree = kPlenty;
    plenty.f_bavail = kPlenty;
    plenty.f_files = kPlenty;
    plenty.f_ffree = kPlenty;
    plenty.f_favail = kPlenty;
    plenty.f_namemax = kMaxNameBytes;
    return plenty;
}

}  // namespace

std::unique_ptr<FileSystem> FileSystem::create(FileSystemEnvironment environment) {
    return std::make_unique<AssembledFileSystem>(std::move(environment));
}

}  // namespace ckptfs::fs
