// SPDX-License-Identifier: Apache-2.0
#include "fs/unlink_batches.h"

#include <algorithm>
#include <utility>

#include "base/thread.h"
#include "ckptfs/log.h"

namespace ckptfs {

namespace {

// DeleteObjects takes at most 1,000 keys (Amazon S3 API Reference).
constexpr std::size_t kMaxNames = 1000;
constexpr Milliseconds kSendAfter{50};
// Of one directory: one on its way, one that is filled.
constexpr std::size_t kMaxBatches = 2;
constexpr std::size_t kMaxFailures = 1000;

std::string without_slash(const std::string& directory) {
    return directory.empty() ? directory : directory.substr(0, directory.size() - 1);
}

}  // namespace

UnlinkBatches::UnlinkBatches(SharedState& state) : state_(state) {
    thread_ = start_thread("unlink-batch", [this] { work(); });
}

UnlinkBatches::~UnlinkBatches() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

// --- runs

bool UnlinkBatches::removal_begins(const NodePtr& directory) {
    NodeId parent = 0;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        parent = directory->parent == nullptr ? 0 : directory->parent->id;
    }
    const std::lock_guard lock(mutex_);
    return runs_.begins(directory->id, parent, state_.env.clock.now());
}

void UnlinkBatches::removal_ends(const NodePtr& directory) {
    const std::lock_guard lock(mutex_);
    runs_.ends(directory->id, state_.env.clock.now());
}

bool UnlinkBatches::is_running(NodeId directory) {
    const std::lock_guard lock(mutex_);
    return runs_.is_running(directory, state_.env.clock.now());
}

// --- filling

UnlinkBatches::Added UnlinkBatches::add(const NodePtr& directory, const std::string& name) {
    std::string key;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        key = state_.key(lock, *directory);
    }
    if (const std::optional<Added> added = add_to_open(directory->id, name)) {
        return *added;
    }
    const KeyOrder::Place place = state_.key_order.enter({without_slash(key)});
    const bool alone = state_.key_order.is_first(place);
    std::optional<Added> added = open_and_add({directory, place, key, {}, {}, false, {}}, alone, name);
    if (!added) {
        return Added::kYes;
    }
    state_.key_order.leave(place);
    return *added;
}

std::optional<UnlinkBatches::Added> UnlinkBatches::add_to_open(NodeId directory, const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (stopping_ || state_.draining) {
        return Added::kNo;
    }
    const auto found = batches_.find(directory);
    return found == batches_.end() ? std::nullopt : add_to_last(found->second, name);
}

std::optional<UnlinkBatches::Added> UnlinkBatches::add_to_last(const std::deque<BatchPtr>& batches,
                                                               const std::string& name) {
    Batch& last = *batches.back();
    if (last.is_sent || last.names.size() >= kMaxNames) {
        return batches.size() < kMaxBatches ? std::nullopt : std::optional(Added::kFull);
    }
    last.names.insert(name);
    if (last.names.size() == kMaxNames) {
        last.due = SteadyTime{};
        changed_.notify_all();
    }
    return Added::kYes;
}

std::optional<UnlinkBatches::Added> UnlinkBatches::open_and_add(Batch batch, bool alone, const std::string& name) {
    const std::lock_guard lock(mutex_);
    const NodeId directory = batch.directory->id;
    const auto found = batches_.find(directory);
    if (found == batches_.end() && !alone) {
        // Nobody is to wait for a commit that happens to be under way there.
        return Added::kNo;
    }
    if (found != batches_.end()) {
        if (const std::optional<Added> added = add_to_last(found->second, name)) {
            return added;
        }
    }
    batch.names.insert(name);
    batch.due = std::chrono::steady_clock::now() + kSendAfter;
    batches_[directory].push_back(std::make_shared<Batch>(std::move(batch)));
    changed_.notify_all();
    return std::nullopt;
}

bool UnlinkBatches::removes(NodeId directory, const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = batches_.find(directory);
    return found != batches_.end() &&
           std::any_of(found->second.begin(), found->second.end(),
                       [&name](const BatchPtr& batch) { return batch->names.contains(name); });
}

std::optional<Error> UnlinkBatches::take_failure(NodeId directory) {
    const std::lock_guard lock(mutex_);
    const auto found = failures_.find(directory);
    if (found == failures_.end()) {
        return std::nullopt;
    }
    std::optional<Error> failure = std::move(found->second);
    failures_.erase(found);
    return failure;
}

// --- waiting

void UnlinkBatches::when_settled(NodeId directory, std::function<void()> run) {
    {
        const std::lock_guard lock(mutex_);
        const auto found = batches_.find(directory);
        if (found != batches_.end()) {
            Batch& last = *found->second.back();
            last.due = SteadyTime{};
            last.waiting.push_back(std::move(run));
            changed_.notify_all();
            return;
        }
    }
    run();
}

void UnlinkBatches::when_all_settled(std::function<void()> run) {
    {
        const std::lock_guard lock(mutex_);
        if (!batches_.empty()) {
            for (auto& [directory, batches] : batches_) {
                batches.back()->due = SteadyTime{};
            }
            waiting_for_all_.push_back(std::move(run));
            changed_.notify_all();
            return;
        }
    }
    run();
}

// --- sending

void UnlinkBatches::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        SteadyTime next = SteadyTime::max();
        std::vector<BatchPtr> due;
        const SteadyTime now = std::chrono::steady_clock::now();
        for (auto& [directory, batches] : batches_) {
            for (const BatchPtr& batch : batches) {
                if (batch->is_sent) {
                    continue;
                }
                if (batch->due <= now) {
                    batch->is_sent = true;
                    due.push_back(batch);
                } else {
                    next = std::min(next, batch->due);
                }
            }
        }
        if (stopping_) {
            return;
        }
        if (!due.empty()) {
            lock.unlock();
            for (const BatchPtr& batch : due) {
                state_.key_order.when_first(batch->place, [this, batch] { send(batch); });
            }
            lock.lock();
        } else if (next == SteadyTime::max()) {
            changed_.wait(lock);
        } else {
            changed_.wait_until(lock, next);
        }
    }
}

void UnlinkBatches::send(const BatchPtr& batch) {
    std::vector<RemoveRequest> keys;
    for (const std::string& name : batch->names) {
        keys.push_back(batch->key + name);
    }
    state_.env.store.remove_many(std::move(keys), [this, batch](Result<std::vector<DeleteFailure>> failures) {
        // What follows asks the store again.
        state_.env.blocking.post([this, batch, failures = std::move(failures)] { answered(batch, failures); });
    });
}

void UnlinkBatches::answered(const BatchPtr& batch, Result<std::vector<DeleteFailure>> failures) {
    std::optional<Error> failed;
    if (!failures) {
        failed = std::move(failures.error());
    } else if (!failures->empty()) {
        failed = std::move(failures->front().error);
    }
    if (failed) {
        log_error(escaped("what was removed from " + batch->key + " is still there: " + failed->message));
    } else {
        deleted_(batch->directory);
    }
    settle(batch, failed);
}

void UnlinkBatches::settle(const BatchPtr& batch, const std::optional<Error>& failed) {
    std::vector<std::function<void()>> waiting;
    {
        const std::lock_guard lock(mutex_);
        if (failed && failures_.size() < kMaxFailures) {
            failures_.insert_or_assign(batch->directory->id, *failed);
        }
        const auto found = batches_.find(batch->directory->id);
        std::erase(found->second, batch);
        if (found->second.empty()) {
            batches_.erase(found);
        }
        waiting.swap(batch->waiting);
        if (batches_.empty()) {
            std::move(waiting_for_all_.begin(), waiting_for_all_.end(), std::back_inserter(waiting));
            waiting_for_all_.clear();
        }
    }
    state_.key_order.leave(batch->place);
    for (const std::function<void()>& run : waiting) {
        run();
    }
}

}  // namespace ckptfs
