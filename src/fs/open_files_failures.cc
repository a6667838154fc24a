// SPDX-License-Identifier: Apache-2.0
// Files that fail, and what must not be published over them.
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "fs/all_ended.h"
#include "fs/open_files.h"

namespace ckptfs::fs {

void OpenFiles::watch(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, pid_t opener, EndOfFile end) {
    writer->when_failed(
        [this, weak = std::weak_ptr(node), weak_writer = std::weak_ptr(writer), opener, end](const Error& error) {
            if (end == EndOfFile::kFailed) {
                counters_.failed();
            } else {
                counters_.held_back();
            }
            const NodePtr failed = weak.lock();
            const std::shared_ptr<FileWriter> its_writer = weak_writer.lock();
            if (failed != nullptr && its_writer != nullptr) {
                drop_written_pages(failed, *its_writer);
                note_failed(*failed, *its_writer, opener, error);
            }
        });
    // Until the record is in the bucket, what is left of the file there tells other mounts that it is missing.
    writer->before_ending(
        [this, weak = std::weak_ptr(node), weak_writer = std::weak_ptr(writer)](std::function<void()> then) {
            const NodePtr ending = weak.lock();
            const std::shared_ptr<FileWriter> its_writer = weak_writer.lock();
            if (its_writer == nullptr) {
                then();
                return;
            }
            const std::string key = ending != nullptr ? key_of_failure(*ending, *its_writer) : its_writer->key();
            state_.failed.when_recorded(key, std::move(then));
        });
}

std::string OpenFiles::key_of_failure(const Node& node, const FileWriter& writer) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    const bool stayed_behind = node.version != nullptr && node.version->stayed_behind && node.parent != nullptr;
    return stayed_behind ? state_.key(lock, node) : writer.key();
}

// The page cache has taken them on their way here. From now on reads get the version before.
void OpenFiles::drop_written_pages(const NodePtr& node, const FileWriter& writer) {
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        node->forget_pages();
        node->has_uncertain_size =
            node->has_uncertain_size || (node->committed && writer.size() != node->committed->size);
    }
    drop_pages_between_reads(node);
}

// An answer that is overtaken by a notice does not teach the kernel the end of the file: up to the size of what was
// given up it would fill up with zeros, and show them.
void OpenFiles::drop_pages_between_reads(const NodePtr& node) {
    const auto is_due = [this, node] {
        const NodeTable::Lock lock = state_.nodes.lock();
        node->drops_pages_after_reads = node->reads_across_end > 0;
        return !node->drops_pages_after_reads;
    };
    state_.env.kernel_cache.invalidate_inode(node->id, {.is_due = is_due});
}

Reply<Payload> OpenFiles::noted_across_end(const NodePtr& node, std::uint64_t end, Reply<Payload> reply) {
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (!node->committed || end <= node->committed->size) {
            return reply;
        }
        ++node->reads_across_end;
    }
    return [this, node, reply = std::move(reply)](Result<Payload> data) {
        reply(std::move(data));
        bool drops_pages = false;
        {
            const NodeTable::Lock lock = state_.nodes.lock();
            drops_pages = --node->reads_across_end == 0 && std::exchange(node->drops_pages_after_reads, false);
        }
        if (drops_pages) {
            drop_pages_between_reads(node);
        }
    };
}

// What has the name by now was written on this mount, or the file can no longer get it. Not where an open with O_TRUNC
// took the name, and its process ended before it came back: the file would still have been published.
bool OpenFiles::has_lost_its_name(const NodeTable::Lock& lock, const Node& node) const {
    if (node.removed || node.parent == nullptr) {
        return true;
    }
    if (node.linked) {
        return false;
    }
    if (node.version != nullptr && (node.version->is_truncated_away() || node.version->has_lost_name)) {
        return true;
    }
    const NodePtr named = state_.nodes.child(lock, node.parent, node.name);
    // Others who have looked since may have found nothing.
    return named != nullptr &&
           (named->type != FileType::kFile || named->writer != nullptr ||
            named->committed.value_or(ObjectVersion{}).etag != node.committed.value_or(ObjectVersion{}).etag);
}

void OpenFiles::note_failed(const Node& node, const FileWriter& writer, pid_t opener, const Error& error) {
    FailedFile file;
    file.key = key_of_failure(node, writer);
    file.reason = error.message;
    file.process = opener;
    file.unanswered = writer.unanswered_commits();
    if (may_be_missing(file.key, state_.env.write.config)) {
        return;
    }
    bool is_to_be_looked_up = false;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        // It was removed, or its name belongs to what another writer writes.
        if (has_lost_its_name(lock, node)) {
            return;
        }
        file.began = state_.env.clock.wall_now() -
                     std::chrono::duration_cast<WallTime::duration>(state_.env.clock.now() - node.opened_to_write);
        // By the open that took the name: the kernel must not find that of a file that failed.
        is_to_be_looked_up = !node.linked;
        // A failed rename has given it another name, and what is there is not known.
        if (state_.key(lock, node) == file.key) {
            file.etag_before = node.committed ? node.committed->etag : "";
        }
        // What another mount had saved before it was truncated does not make it good: then the time tells.
        if (node.version != nullptr && node.version->believed_etag && file.etag_before == node.version->believed_etag) {
            file.etag_before.reset();
            file.opened = node.opened_to_write;
        }
    }
    const std::string key = file.key;
    state_.failed.add(std::move(file));
    if (is_to_be_looked_up) {
        state_.failed.looked_at(key);
    }
}

// A caller that gets the error may tell other processes, which commit from another node.
void OpenFiles::answer_failed(const Handle& handle, const Error& error, std::function<void()> answer) {
    const std::shared_ptr<FileWriter>& writer = handle.writer;
    note_failed(*handle.node, *writer, handle.opener, error);
    std::function<void()> in_time = state_.failed.in_time(std::move(answer));
    const std::string key = key_of_failure(*handle.node, *writer);
    writer->abort(
        error, [this, key, in_time = std::move(in_time)](const Status&) { state_.failed.when_recorded(key, in_time); });
}

void OpenFiles::abort_killed(const Handle& handle, std::function<void()> ended) {
    give_up(handle, lost_error(*handle.writer), EndOfFile::kHeldBack, std::move(ended));
}

void OpenFiles::give_up(const Handle& handle, const Error& why, EndOfFile end, std::function<void()> ended) {
    log_warning(escaped(why.message));
    watch(handle.node, handle.writer, handle.opener, end);
    abort_begins();
    const std::string key = key_of_failure(*handle.node, *handle.writer);
    handle.writer->abort(why, [this, key, ended = std::move(ended)](const Status&) {
        state_.failed.when_recorded(key, [this, ended] {
            ended();
            abort_ends();
        });
    });
}

void OpenFiles::allow_marker(const std::string& marker_key, const std::string& source_key, Reply<StillCounts> reply) {
    commit_siblings(marker_key, source_key, [this, marker_key, reply = std::move(reply)](const Status& committed) {
        if (committed) {
            gate_.check(marker_key, reply);
            return;
        }
        reply(failure(EIO, format("{} is not committed, because another file below its directory could not be: {}",
                                  marker_key, committed.error().message)));
    });
}

void OpenFiles::commit_siblings(const std::string& marker_key, const std::string& source_key, Reply<void> reply) {
    const std::string directory = directory_of(marker_key);
    std::vector<std::pair<NodePtr, std::shared_ptr<FileWriter>>> unfinished;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        for (const NodePtr& node : state_.nodes.with_writers(lock)) {
            const std::shared_ptr<FileWriter>& writer = node->writer;
            const std::string key = writer->key();
            if (key.starts_with(directory) && key != source_key && !may_be_missing(key, state_.env.write.config) &&
                writer->dirty() && !writer->failed() && !node->removed &&
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

void OpenFiles::commit_marker(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, const std::string& key,
                              CommitReason reason, Reply<void> reply) {
    allow_marker(key, key, [this, node, writer, key, reason, reply = std::move(reply)](Result<StillCounts> allowed) {
        if (allowed) {
            const auto renew = [this, key](Reply<StillCounts> renewed) { gate_.check(key, std::move(renewed)); };
            commit_when_first(node, writer, {key, true, {std::move(*allowed), renew}}, reason, reply);
            return;
        }
        log_error(escaped(allowed.error().message));
        // A writer gets no EACCES of the gate's requests either.
        const Error told = kept_failure(std::move(allowed.error()));
        writer->abort(told, [reply, told](const Status&) { reply(failure(told)); });
    });
}

}  // namespace ckptfs::fs
