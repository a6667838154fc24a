// SPDX-License-Identifier: Apache-2.0
#include "fs/files/draining.h"

#include <algorithm>
#include <optional>

#include "fs/all_ended.h"

namespace ckptfs::fs {

Error cut_off_error(const FileWriter& writer) {
    Error why;
    why.message = writer.key() + " was not saved: the mount ended before it was closed";
    return why;
}

void Draining::change_begins(NameChange change, const std::string& name) {
    const MutexLock lock(mutex_);
    changes_.emplace(change, name);
}

void Draining::change_ends(NameChange change, const std::string& name) {
    {
        const MutexLock lock(mutex_);
        changes_.extract({change, name});
    }
    answer();
}

void Draining::abort_begins() {
    const MutexLock lock(mutex_);
    ++aborts_;
}

void Draining::abort_ends() {
    {
        const MutexLock lock(mutex_);
        --aborts_;
    }
    answer();
}

// Called before the node forgets the writer: from then on nothing else tells that its upload is still being ended.
void Draining::after_abort(const std::shared_ptr<FileWriter>& writer) {
    if (writer == nullptr) {
        return;
    }
    if (std::optional<Error> failed = writer->failed()) {
        abort_begins();
        writer->abort(std::move(*failed), [this](const Status& /*ended*/) { abort_ends(); });
    }
}

void Draining::begin(Reply<void> reply) {
    state_.draining = true;
    {
        MutexLock lock(mutex_);
        waiting_for_drain_.push_back(std::move(reply));
    }
    answer();
}

void Draining::note_cut_off(const std::string& key) {
    const MutexLock lock(mutex_);
    cut_off_.push_back(key);
}

std::vector<std::string> Draining::cut_off() const {
    const MutexLock lock(mutex_);
    return cut_off_;
}

std::size_t Draining::changes() const {
    const MutexLock lock(mutex_);
    return changes_.size();
}

std::vector<std::string> Draining::renames() const {
    std::vector<std::string> names;
    const MutexLock lock(mutex_);
    for (const auto& [change, name] : changes_) {
        if (change == NameChange::kRename) {
            names.push_back(name);
        }
    }
    return names;
}

void Draining::answer() {
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
        MutexLock lock(mutex_);
        if (!changes_.empty() || aborts_ > 0) {
            return;
        }
        replies.swap(waiting_for_drain_);
    }
    for (const Reply<void>& reply : replies) {
        reply({});
    }
}

void Draining::end_unreleased(const std::vector<std::shared_ptr<FileWriter>>& writers) {
    for (const std::shared_ptr<FileWriter>& writer : writers) {
        {
            const MutexLock lock(mutex_);
            if (!unreleased_.insert(writer).second) {
                continue;
            }
            ++aborts_;
        }
        writer->when_failed(nullptr);
        writer->abort(cut_off_error(*writer), [this](const Status&) { abort_ends(); });
    }
}

std::vector<std::string> Draining::abandon(Reply<void> ended) {
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
    const MutexLock lock(mutex_);
    for (const auto& [change, name] : changes_) {
        lost.push_back(name + (change == NameChange::kRename ? " (its rename was not finished)"
                                                             : " (its removal was not finished)"));
    }
    return lost;
}

}  // namespace ckptfs::fs
