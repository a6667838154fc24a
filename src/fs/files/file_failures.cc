// SPDX-License-Identifier: Apache-2.0
#include "fs/files/file_failures.h"

#include <utility>

#include "base/store_wait.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs::fs {

Error lost_error(const FileWriter& writer) {
    Error why;
    why.message = writer.key() + " is not published: its writer was killed before it was closed";
    return why;
}

Error removed_error(const FileWriter& writer) {
    Error why;
    why.errno_value = ENOENT;
    why.message = writer.key() + " was removed or renamed over while it was written";
    return why;
}

void FileFailures::watch(const NodePtr& node, const std::shared_ptr<FileWriter>& writer, pid_t opener, EndOfFile end) {
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
                pages_.drop_written_pages(failed, *its_writer);
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

std::string FileFailures::key_of_failure(const Node& node, const FileWriter& writer) const {
    const NodeTable::Lock lock = state_.nodes.lock();
    const bool stayed_behind = node.version != nullptr && node.version->stayed_behind && node.parent != nullptr;
    return stayed_behind ? state_.key(lock, node) : writer.key();
}

// Whether what has the name by now was written on this mount, or the file can no longer get it. Not where an open with
// O_TRUNC took the name, and its process ended before it came back: the file would still have been published.
bool FileFailures::has_lost_its_name(const NodeTable::Lock& lock, const Node& node) const {
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

void FileFailures::note_failed(const Node& node, const FileWriter& writer, pid_t opener, const Error& error) {
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
        // The file was removed, or its name belongs to what another writer writes.
        if (has_lost_its_name(lock, node)) {
            return;
        }
        // A descriptor of it may be closed for long after the failure was made good.
        const bool is_its_version = node.version != nullptr && (node.writer == nullptr || node.writer.get() == &writer);
        if (is_its_version && node.version->failure_was_noted.exchange(true) && !state_.failed.knows(file.key)) {
            return;
        }
        file.opened = node.opened_to_write;
        file.began = state_.env.clock.wall_now() -
                     std::chrono::duration_cast<WallTime::duration>(state_.env.clock.now() - node.opened_to_write);
        // The open that took the name will look it up: the kernel must not find that of a file that failed.
        is_to_be_looked_up = !node.linked;
        // A failed rename has given it another name, and what is there is not known.
        if (state_.key(lock, node) == file.key) {
            file.etag_before = node.committed ? node.committed->etag : "";
        }
        // What another mount had saved before the truncation does not resolve the failure: then the time tells.
        if (node.version != nullptr && node.version->believed_etag && file.etag_before == node.version->believed_etag) {
            file.etag_before.reset();
        }
    }
    const std::string key = file.key;
    state_.failed.add(std::move(file));
    if (is_to_be_looked_up) {
        state_.failed.looked_at(key);
    }
}

// A caller that gets the error may tell other processes, which commit from another node.
void FileFailures::answer_failed(const Handle& handle, const Error& error, std::function<void()> answer) {
    const std::shared_ptr<FileWriter>& writer = handle.writer;
    note_failed(*handle.node, *writer, handle.opener, error);
    std::function<void()> in_time = state_.failed.in_time(std::move(answer));
    const std::string key = key_of_failure(*handle.node, *writer);
    writer->abort(
        error, [this, key, in_time = std::move(in_time)](const Status&) { state_.failed.when_recorded(key, in_time); });
}

void FileFailures::abort_killed(const Handle& handle, std::function<void()> ended) {
    give_up(handle, lost_error(*handle.writer), EndOfFile::kHeldBack, std::move(ended));
}

void FileFailures::give_up(const Handle& handle, const Error& why, EndOfFile end, std::function<void()> ended) {
    log_warning(escaped(why.message));
    watch(handle.node, handle.writer, handle.opener, end);
    draining_.abort_begins();
    const std::string key = key_of_failure(*handle.node, *handle.writer);
    handle.writer->abort(why, [this, key, ended = std::move(ended)](const Status&) {
        state_.failed.when_recorded(key, [this, ended] {
            ended();
            draining_.abort_ends();
        });
    });
}

void FileFailures::orphan(const std::shared_ptr<FileWriter>& writer) {
    // No marker waits for it.
    writer->when_failed(nullptr);
    const Status ended = wait_for<void>([&](auto done) { writer->orphan(removed_error(*writer), std::move(done)); });
    if (!ended) {
        log_warning(escaped(ended.error().message));
    }
}

void FileFailures::end_versions(const std::vector<NodePtr>& overtaken) {
    for (const NodePtr& node : overtaken) {
        std::shared_ptr<FileWriter> writer;
        std::shared_ptr<WrittenVersion> version;
        {
            const NodeTable::Lock lock = state_.nodes.lock();
            writer = node->writer;
            version = node->version;
            node->removed = node->removed || version->is_truncated_away();
        }
        if (writer == nullptr) {
            continue;
        }
        if (node->removed) {
            orphan(writer);
            continue;
        }
        version->has_lost_name = true;
        Error why;
        why.message = writer->key() + " was renamed while an earlier version of it was being written; write it anew";
        log_warning(escaped(why.message));
        static_cast<void>(wait_for<void>([&](auto done) { writer->abort(why, std::move(done)); }));
    }
}

}  // namespace ckptfs::fs
