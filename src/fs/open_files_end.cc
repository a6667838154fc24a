// SPDX-License-Identifier: Apache-2.0
// Which open files a mount waits for at its end, and how it gives up what it cannot wait for.
#include <algorithm>
#include <utility>

#include "fs/all_ended.h"
#include "fs/open_files.h"

namespace ckptfs::fs {
void OpenFiles::rename_begins(const std::string& name) {
    const MutexLock lock(drain_mutex_);
    renames_.insert(name);
}

void OpenFiles::rename_ends(const std::string& name) {
    {
        const MutexLock lock(drain_mutex_);
        renames_.extract(name);
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

void OpenFiles::drain(Reply<void> reply) {
    state_.draining = true;
    {
        MutexLock lock(drain_mutex_);
        waiting_for_drain_.push_back(std::move(reply));
    }
    answer_drain();
}

void OpenFiles::disconnected() {
    state_.disconnected = true;
    answer_drain();
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
        if (!renames_.empty() || aborts_ > 0) {
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
        Error why;
        why.message = writer->key() + " was not saved: the mount ended before it was closed";
        writer->abort(std::move(why), [this](const Status&) { abort_ends(); });
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
        Error why;
        why.message = writer->key() + " was not saved: the mount ended before it was closed";
        // Those with nothing to save as well: what waits for memory on their behalf would wait for ever.
        writer->abort(std::move(why), [this, key = writer->key(), all_ended](const Status& status) {
            state_.failed.when_recorded(key, [all_ended, status] { all_ended->one_more(status); });
        });
    }
    all_ended->one_more({});
    const MutexLock lock(drain_mutex_);
    for (const std::string& name : renames_) {
        lost.push_back(name + " (its rename was not finished)");
    }
    return lost;
}

}  // namespace ckptfs::fs
