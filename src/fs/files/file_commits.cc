// SPDX-License-Identifier: Apache-2.0
#include "fs/files/file_commits.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/globs.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "fs/all_ended.h"
#include "fs/once_released.h"

namespace ckptfs::fs {

namespace {

// The kernel waits for a locked page, for minutes maybe on a store that hangs. An open of the file meanwhile waits for
// that in the kernel.
constexpr Milliseconds kLongestDrop{1000};

}  // namespace

bool FileCommits::publishes_marker(const FileWriter& writer, const std::string& key, CommitReason reason) const {
    const bool publishes = writer.dirty() && !(saves_only_writes(reason) && writer.pristine());
    return publishes && gate_.is_marker(key);
}

void FileCommits::commit_in_order(const NodePtr& node, const std::shared_ptr<FileWriter>& writer,
                                  const CommitCause& cause, Reply<void> reply) {
    const std::string key = writer->key();
    if (publishes_marker(*writer, key, cause.reason)) {
        commit_marker(node, writer, key, cause, std::move(reply));
    } else {
        commit_when_first(node, writer, {key, false}, cause, std::move(reply));
    }
}

void FileCommits::commit_when_first(const NodePtr& node, const std::shared_ptr<FileWriter>& writer,
                                    const KeyToCommit& to, const CommitCause& cause, Reply<void> reply) {
    const KeyOrder::Place place = state_.key_order.enter({to.key});
    state_.key_order.when_first(place, [this, node, writer, to, cause, place, reply = std::move(reply)] {
        const auto leave = [this, place] { state_.key_order.leave(place); };
        if (writer->key() == to.key && (to.is_allowed || !publishes_marker(*writer, to.key, cause.reason))) {
            commit(node, writer, cause, to.permit, reply, leave);
            return;
        }
        // A file that was renamed meanwhile has another line to wait in. One that got a marker's name has to pass the
        // gate, also if it had nothing to save when it came. The gate is not asked from here: what it saves first may
        // wait for this place.
        leave();
        commit_in_order(node, writer, cause, reply);
    });
}

void FileCommits::commit_marker(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, const std::string& key,
                                const CommitCause& cause, Reply<void> reply) {
    allow_marker(key, key, [this, node, writer, key, cause, reply = std::move(reply)](Result<StillCounts> allowed) {
        if (allowed) {
            const auto renew = [this, key](Reply<StillCounts> renewed) { gate_.check(key, std::move(renewed)); };
            commit_when_first(node, writer, {key, true, {std::move(*allowed), renew}}, cause, reply);
            return;
        }
        log_error(escaped(allowed.error().message));
        // A writer gets no EACCES of the gate's requests either.
        const Error told = kept_failure(std::move(allowed.error()));
        writer->abort(told, [reply, told](const Status&) { reply(failure(told)); });
    });
}

void FileCommits::allow_marker(const std::string& marker_key, const std::string& source_key, Reply<StillCounts> reply) {
    commit_siblings(marker_key, source_key, [this, marker_key, reply = std::move(reply)](const Status& committed) {
        if (committed) {
            gate_.check(marker_key, reply);
            return;
        }
        reply(failure(EIO, format("{} is not committed, because another file below its directory could not be: {}",
                                  marker_key, committed.error().message)));
    });
}

void FileCommits::commit_siblings(const std::string& marker_key, const std::string& source_key, Reply<void> reply) {
    const std::string directory = directory_of(marker_key);
    std::vector<std::pair<NodePtr, std::shared_ptr<FileWriter>>> unfinished;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        for (const NodePtr& node : state_.nodes.with_writers(lock)) {
            const std::shared_ptr<FileWriter>& writer = node->writer;
            const std::string key = writer->key();
            // Once a later version of the name is saved, an earlier one is left to its own close: it may be half of an
            // attempt that was given up.
            const bool is_overtaken = node->version->replaced_at != 0;
            if (key.starts_with(directory) && key != source_key && !may_be_missing(key, state_.env.write.config) &&
                writer->dirty() && !writer->failed() && !node->removed && !is_overtaken &&
                (!writer->pristine() || node->version->fate.left_by_killed_writer())) {
                unfinished.emplace_back(node, writer);
            }
        }
    }
    const auto all = std::make_shared<AllEnded>(unfinished.size(), std::move(reply));
    for (const auto& [node, writer] : unfinished) {
        commit_in_order(node, writer, CommitReason::kFsync, [all](const Status& status) { all->one_more(status); });
    }
    all->one_more({});
}

// While a commit waited for its turn another process may have begun to write to the file, or in another way than a log
// is written: then it is for that process to publish.
bool FileCommits::is_left_to_others(const Node& node, const WrittenVersion* version, CommitReason reason) const {
    if (reason == CommitReason::kMade) {
        return version != nullptr && version->fate.state(kUnseenProcess, kUnseenProcess).written;
    }
    const NodeTable::Lock lock = state_.nodes.lock();
    if (reason == CommitReason::kPublish) {
        return !node.is_live_log;
    }
    return reason == CommitReason::kRelease && node.writable_handles > 0;
}

// A close has asked before, but may have waited for its turn since: for an upload, or for the gate. A rename asks
// before it moves the file.
bool FileCommits::is_of_the_dying(const Node& node, const FileWriter& writer, const WrittenVersion& version,
                                  const CommitCause& cause) const {
    const bool asks = cause.reason == CommitReason::kFsync || cause.reason == CommitReason::kClose;
    return asks && !writer.failed() && is_left_half(node, version, cause.closing);
}

void FileCommits::commit(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, const CommitCause& cause,
                         const PublishPermit& permit, Reply<void> reply, std::function<void()> ended) {
    const CommitReason reason = cause.reason;
    const std::shared_ptr<WrittenVersion> version = written_version_of(node, writer);
    const bool is_discarded = version != nullptr && version->is_truncated_away() && !writer->failed();
    if (version != nullptr && !is_discarded &&
        (version->fate.left_by_killed_writer() || is_of_the_dying(*node, *writer, *version, cause))) {
        if (reason != CommitReason::kPublish) {
            version->fate.tell();
        }
        reply(failure(lost_error(*writer)));
        ended();
        return;
    }
    // Nothing is published of a file that was removed while this waited, and its handles go on.
    const bool is_removed = node->removed && !writer->failed();
    if (is_removed || is_discarded || is_left_to_others(*node, version.get(), reason)) {
        reply({});
        ended();
        return;
    }
    if (reason == CommitReason::kMade && version != nullptr && !writer->dirty() && !writer->failed()) {
        commit_once_more(node, writer, version, std::move(reply), std::move(ended));
        return;
    }
    const VersionFate::Generation begun = version != nullptr ? version->fate.commit_begins() : 0;
    const bool is_changed = writer->dirty();
    PublishPermits* const permits = permit.counts ? &state_.env.write.permits : nullptr;
    if (permits != nullptr) {
        permits->give(writer->key(), permit);
    }
    const auto noted = [version, permits, key = writer->key(),
                        is_counted = version != nullptr && version->commits.begin()] {
        if (is_counted) {
            version->commits.end();
        }
        if (permits != nullptr) {
            permits->take_back(key);
        }
    };
    writer->commit(reason, [this, node, writer, version, begun, is_changed, noted, reason, reply = std::move(reply),
                            ended = std::move(ended), asked = state_.env.clock.now()](Result<CommittedObject> object) {
        if (object) {
            // fsync before the first write publishes nothing.
            bool only_appended = false;
            // Nor does one that finds nothing to save: it does not replace what another mount has saved since.
            const bool is_published = !object->etag.empty() && (is_changed || reason != CommitReason::kFsync);
            if (version != nullptr && is_published) {
                only_appended = version->fate.committed(begun);
                replace_earlier_versions(node, *object);
            }
            state_.contents.remember(writer->key(), object->etag, {FileType::kFile, object->size});
            if (!object->etag.empty()) {
                state_.leftovers.forget(writer->key());
                state_.leftovers.published(writer->key(), object->etag, version);
            }
            const auto all = std::make_shared<AllEnded>(1, reply);
            note_committed(node, *object, {is_changed, only_appended}, [all] { all->one_more({}); });
            noted();
            const auto cleared = [all, ended] {
                all->one_more({});
                ended();
            };
            // Another mount that commits a marker after this close finds no record of an earlier failure.
            object->etag.empty() ? cleared() : state_.failed.clear_from_before(writer->key(), asked, cleared);
            return;
        }
        noted();
        if (reason == CommitReason::kPublish && !writer->failed()) {
            reply(failure(object.error()));
            ended();
            return;
        }
        if (node->removed) {
            // Removed meanwhile: the removal gives the writer up itself.
            reply({});
            ended();
            return;
        }
        // Before the answer, upon which a release goes on.
        draining_.abort_begins();
        reply(failure(object.error()));
        // The writer may have been given up while its last request was in flight.
        writer->abort(std::move(object.error()), [this, ended](const Status&) {
            ended();
            draining_.abort_ends();
        });
    });
}

// So for a process that /proc does not show, if no close has published the truncation.
bool FileCommits::is_truncated_again(const Handle& handle) const {
    return handle.version->fate.state(kUnseenProcess, handle.opener).unsaved && !handle.is_cut_off &&
           !handle.version->is_truncated_away() && decide_last_release(handle) == ReleaseAction::kCommit;
}

// The file is saved, empty, and was truncated again since: that changes what another mount has saved meanwhile, and
// nothing else. To ask costs less than to write, and leaves no version in the bucket for each of many processes that
// take turns at a lock file.
void FileCommits::commit_once_more(const NodePtr& node, const std::shared_ptr<FileWriter>& writer,
                                   const std::shared_ptr<WrittenVersion>& version, Reply<void> reply,
                                   std::function<void()> ended) {
    if (!version->fate.state(kUnseenProcess, kUnseenProcess).unsaved) {
        reply({});
        ended();
        return;
    }
    const VersionFate::Generation begun = version->fate.commit_begins();
    state_.env.store.head(writer->key(), [this, node, writer, version, begun, reply = std::move(reply),
                                          ended = std::move(ended)](const Result<ObjectInfo>& object) {
        bool is_there = false;
        {
            const NodeTable::Lock lock = state_.nodes.lock();
            is_there = object && node->committed && node->committed->etag == object->etag;
        }
        if (is_there) {
            static_cast<void>(version->fate.committed(begun));
            reply({});
            ended();
            return;
        }
        // The commit finds out what it has to replace, or that the store does not answer.
        writer->begin_anew();
        ended();
        commit_in_order(node, writer, CommitReason::kMade, reply);
    });
}

void FileCommits::replace_earlier_versions(const NodePtr& node, const CommittedObject& object) {
    std::vector<NodePtr> earlier;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (node->removed || node->version == nullptr) {
            return;
        }
        const WrittenVersion::Moment made = node->version->made_at.load();
        // The name has this version again, though a later one was saved: it was written since.
        node->version->replaced_at = 0;
        earlier = state_.nodes.overtaken(lock, node->parent, node->name);
        std::erase_if(earlier, [&node](const NodePtr& version) { return version->id >= node->id; });
        for (const NodePtr& version : earlier) {
            WrittenVersion& written = *version->version;
            written.replaced_at = std::max(written.replaced_at.load(), made);
            written.replaced_by = object;
        }
        const bool is_log = matches_any(node->name, state_.env.write.config.keep_on_kill);
        if (is_log || (earlier.empty() && node->writable_handles <= 1)) {
            return;
        }
    }
    earlier.push_back(node);
    give_up_attempts(earlier);
}

void FileCommits::note_committed(const NodePtr& node, const CommittedObject& object, Change change,
                                 std::function<void()> dropped) {
    const auto drops = std::make_shared<OnceReleased>(std::move(dropped));
    // fsync before the first write publishes nothing.
    if (object.etag.empty()) {
        return;
    }
    const ObjectVersion version{object.etag, object.size, object.stored_size, object.modified};
    bool pages_are_old = false;
    // Appending leaves the pages before it as they are, and leaves a reader of those its read-ahead.
    std::uint64_t from = 0;
    std::vector<KernelPages::Grown> followers;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const bool is_same = node->committed && node->committed->etag == object.etag;
        if (is_same && !change.is_made) {
            return;
        }
        if (!is_same) {
            // Only appended by all writers, or by those that have written since the commit before.
            const bool only_appended = change.only_appended || node->only_appended;
            from = only_appended && node->committed ? node->committed->size : 0;
            followers = note_version(lock, node, version, only_appended);
        }
        // Handles that have the file open may have filled pages since the commit before, also by a mapping. Bytes that
        // were changed, read, and changed back are in them, too.
        pages_are_old =
            !node->pages_etag.empty() || node->pages_were_read || node->cached_handles > 0 || node->readers > 0;
        node->forget_pages();
        const SteadyTime now = state_.env.clock.now();
        node->checked = node->linked ? now : SteadyTime{};
        node->committed_beside.reset();
        if (!node->linked) {
            // The name has another node by now, and the bucket this commit: the next lookup has to ask.
            if (const NodePtr current = state_.nodes.child(lock, node->parent, node->name)) {
                current->checked = SteadyTime{};
                current->committed_beside = std::make_unique<const std::string>(object.etag);
            }
        }
    }
    if (pages_are_old) {
        state_.env.kernel_cache.invalidate_inode(node->id, {.from = from, .held = drops});
    }
    for (const KernelPages::Grown& follower : followers) {
        pages_.show_growth(follower, version, drops);
    }
    if (pages_are_old || !followers.empty()) {
        waits_.after(kLongestDrop, [late = std::weak_ptr(drops)] {
            if (const auto waiting = late.lock()) {
                waiting->run();
            }
        });
    }
}

std::vector<KernelPages::Grown> FileCommits::note_version(const NodeTable::Lock& lock, const NodePtr& node,
                                                          const ObjectVersion& version, bool only_appended) {
    counters_.committed(version.size, version.stored_size);
    if (node->parent != nullptr) {
        lookups_.forget_listed(node->parent->id, node->name);
    }
    const bool had_bytes = node->committed && node->committed->size > 0;
    node->committed = version;
    node->reader = nullptr;
    node->rewrites += only_appended ? 0 : 1;
    std::vector<KernelPages::Grown> grown;
    for (const NodePtr& follower : NodeTable::followers(lock, *node)) {
        grown.push_back({follower, only_appended && follower->committed ? follower->committed->size : 0});
        if (only_appended) {
            follower->grown = std::make_unique<ObjectVersion>(version);
        } else {
            state_.nodes.stop_following(lock, follower);
        }
    }
    // A process that has read the version before may have mapped it, and fills pages of this inode with it: the next
    // open gets another inode.
    const bool is_read_as_before =
        had_bytes && !only_appended && node->readers > 0 && (node->writer == nullptr || !node->writer->readable());
    // What was written by another node's inode does not show in the size that the kernel has of this one.
    node->has_uncertain_size = node->has_uncertain_size || node->shares_inode || is_read_as_before;
    return grown;
}

// The last of the versions is committed. What the same process opened earlier, to write the same file, was for an
// attempt that failed: a kept exception, or a late garbage collector, closes it in the end, and its buffered data
// would replace the file.
void FileCommits::give_up_attempts(const std::vector<NodePtr>& versions) {
    const NodePtr& committed = versions.back();
    const std::vector<HandlePtr> handles = handles_.all();
    std::map<pid_t, WrittenVersion::Moment> openers;
    for (const HandlePtr& handle : handles) {
        if (handle->node == committed && handle->noted != VersionFate::kNever) {
            WrittenVersion::Moment& last = openers[handle->opener];
            last = std::max(last, handle->opened_at);
        }
    }
    openers.erase(kUnseenProcess);
    for (const HandlePtr& handle : handles) {
        const bool is_earlier = handle->node == committed
                                    ? handle->has_only_truncated.load()
                                    : handle->version != nullptr && handle->version->is_truncated_away();
        const auto opener = openers.find(handle->opener);
        if (is_earlier && (handle->flags & O_APPEND) == 0 && opener != openers.end() &&
            handle->opened_at <= opener->second &&
            std::find(versions.begin(), versions.end(), handle->node) != versions.end()) {
            handle->is_given_up = true;
        }
    }
}

std::shared_ptr<WrittenVersion> FileCommits::written_version_of(const NodePtr& node,
                                                                const std::shared_ptr<FileWriter>& writer) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    return node->writer == writer ? node->version : nullptr;
}

bool FileCommits::is_left_half(const Node& node, const WrittenVersion& version, pid_t except) const {
    bool has_log_name = false;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        has_log_name = matches_any(node.name, state_.env.write.config.keep_on_kill);
    }
    if (is_kept_when_killed(version.fate.state(kUnseenProcess, kUnseenProcess), has_log_name)) {
        return false;
    }
    std::vector<pid_t> processes = version.fate.answering();
    if (version.fate.state(kUnseenProcess, kUnseenProcess).mapped) {
        // Any of those that opened it to read and write may have changed it by a mapping.
        for (const HandlePtr& handle : handles_.all()) {
            if (handle->node.get() == &node && (handle->flags & O_ACCMODE) == O_RDWR) {
                processes.push_back(handle->opener);
            }
        }
    }
    return std::any_of(processes.begin(), processes.end(), [&](pid_t process) {
        return process != except && process != kUnseenProcess && !version.fate.has_left(process) &&
               state_.env.processes.is_being_killed(process);
    });
}

// A truncation by name has no opener, which is no sign of a writer that cannot be seen, or is gone: where it is the
// last, the release before it decides.
ReleaseAction FileCommits::decide_last_release(const Handle& handle) {
    const LetGo last = handle.version->last_let_go.load();
    return decide_release(handle.version->fate.state(kUnseenProcess, last.opener), handle.is_disowned, last.end);
}

}  // namespace ckptfs::fs
