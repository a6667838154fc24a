// SPDX-License-Identifier: Apache-2.0
// Which open files a mount waits for at its end, and how it gives up what it cannot wait for.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/globs.h"
#include "fs/all_ended.h"
#include "fs/files/close_rule.h"
#include "fs/files/open_files.h"

namespace ckptfs::fs {

namespace {

Error cut_off_error(const FileWriter& writer) {
    Error why;
    why.message = writer.key() + " was not saved: the mount ended before it was closed";
    return why;
}

}  // namespace

void OpenFiles::change_begins(NameChange change, const std::string& name) {
    const MutexLock lock(drain_mutex_);
    changes_.emplace(change, name);
}

void OpenFiles::change_ends(NameChange change, const std::string& name) {
    {
        const MutexLock lock(drain_mutex_);
        changes_.extract({change, name});
    }
    answer_drain();
}

void OpenFiles::abort_begins() {
    const MutexLock lock(drain_mutex_);
    ++aborts_;
}

void OpenFiles::abort_ends() {
    {
        const MutexLock lock(drain_mutex_);
        --aborts_;
    }
    answer_drain();
}

// Called before the node forgets the writer: from then on nothing else tells that its upload is still being ended.
void OpenFiles::drain_after_abort(const std::shared_ptr<FileWriter>& writer) {
    if (writer == nullptr) {
        return;
    }
    if (std::optional<Error> failed = writer->failed()) {
        abort_begins();
        writer->abort(std::move(*failed), [this](const Status& /*ended*/) { abort_ends(); });
    }
}

void OpenFiles::drain(Reply<void> reply) {
    state_.draining = true;
    {
        MutexLock lock(drain_mutex_);
        waiting_for_drain_.push_back(std::move(reply));
    }
    answer_drain();
}

void OpenFiles::disconnected() {
    if (!state_.disconnected.exchange(true)) {
        for (const HandleId id : handles_.ids()) {
            if (const HandlePtr handle = handles_.find(id)) {
                handle->is_cut_off = true;
            }
            release(id, [](const Status& /*logged*/) {});
        }
    }
    answer_drain();
}

void OpenFiles::release_cut_off(const HandlePtr& handle, const Reply<void>& reply) {
    // A commit under way may be that of a close.
    const KeyOrder::Place place = state_.key_order.enter({handle->writer->key()});
    state_.key_order.when_first(place, [this, handle, reply, place] {
        state_.key_order.leave(place);
        const std::shared_ptr<FileWriter>& writer = handle->writer;
        const VersionState version = handle->version->fate.state(kUnseenProcess, handle->opener);
        bool is_log = false;
        {
            const NodeTable::Lock lock = state_.nodes.lock();
            is_log = matches_any(handle->node->name, state_.env.write.config.keep_on_kill);
        }
        if (writer->failed() || !writer->dirty()) {
            finish_release(handle, {}, reply);
        } else if (decide_cut_off(version, is_log) == ReleaseAction::kCommit) {
            commit_in_order(handle->node, writer, CommitReason::kRelease,
                            [this, handle, reply](Status saved) { finish_release(handle, std::move(saved), reply); });
        } else {
            {
                const MutexLock lock(drain_mutex_);
                cut_off_.push_back(writer->key());
            }
            give_up(*handle, cut_off_error(*writer), EndOfFile::kFailed,
                    [this, handle, reply] { finish_release(handle, {}, reply); });
        }
    });
}

std::vector<std::string> OpenFiles::cut_off() const {
    const MutexLock lock(drain_mutex_);
    return cut_off_;
}

void OpenFiles::answer_drain() {
    if (!state_.draining) {
        return;
    }
    std::vector<std::shared_ptr<FileWriter>> unreleased;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const auto writers = state_.nodes.with_writers(lock);
        if (std::any_of(writers.begin(), writers.end(), [this](const NodePtr& node) REQUIRES(node_table) {
                return !state_.disconnected || (node->is_unsaved() && !node->writer->failed());
            })) {
            return;
        }
        for (const NodePtr& node : writers) {
            unreleased.push_back(node->writer);
        }
    }
    end_unreleased(unreleased);
    std::vector<Reply<void>> replies;
    {
        MutexLock lock(drain_mutex_);
        if (!changes_.empty() || aborts_ > 0) {
            return;
        }
        replies.swap(waiting_for_drain_);
    }
    for (const Reply<void>& reply : replies) {
        reply({});
    }
}

void OpenFiles::end_unreleased(const std::vector<std::shared_ptr<FileWriter>>& writers) {
    for (const std::shared_ptr<FileWriter>& writer : writers) {
        {
            const MutexLock lock(drain_mutex_);
            if (!unreleased_.insert(writer).second) {
                continue;
            }
            ++aborts_;
        }
        writer->when_failed(nullptr);
        writer->abort(cut_off_error(*writer), [this](const Status&) { abort_ends(); });
    }
}

std::vector<std::string> OpenFiles::abandon(Reply<void> ended) {
    std::vector<std::pair<std::shared_ptr<FileWriter>, bool>> writers;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        for (const NodePtr& node : state_.nodes.with_writers(lock)) {
            writers.emplace_back(node->writer, node->is_unsaved());
        }
    }
    std::vector<std::string> lost;
    const auto all_ended = std::make_shared<AllEnded>(writers.size(), std::move(ended));
    for (const auto& [writer, is_unsaved] : writers) {
        if (is_unsaved) {
            lost.push_back(writer->key());
        } else {
            writer->when_failed(nullptr);
        }
        // Writers with nothing to save as well: what waits for memory on their behalf would wait for ever.
        writer->abort(cut_off_error(*writer), [this, key = writer->key(), all_ended](const Status& status) {
            state_.failed.when_recorded(key, [all_ended, status] { all_ended->one_more(status); });
        });
    }
    all_ended->one_more({});
    const MutexLock lock(drain_mutex_);
    for (const auto& [change, name] : changes_) {
        lost.push_back(name + (change == NameChange::kRename ? " (its rename was not finished)"
                                                             : " (its removal was not finished)"));
    }
    return lost;
}

}  // namespace ckptfs::fs
