// SPDX-License-Identifier: Apache-2.0
#include "fs/names/unlink_batches.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/store_wait.h"
#include "base/text.h"
#include "base/thread.h"
#include "ckptfs/log.h"
#include "write/part_plan.h"

namespace ckptfs::fs {

namespace {

// DeleteObjects takes at most 1,000 keys (Amazon S3 API Reference).
constexpr std::size_t kMaxNames = 1000;
constexpr Milliseconds kSendAfter{50};
// For each directory: one on its way, one that is being filled.
constexpr std::size_t kMaxBatches = 2;
constexpr std::size_t kMaxFailures = 1000;
constexpr std::size_t kLooksAtOnce = 16;
// The store's time is known to 5 s, and given to the second. What is left is for the upload, since a store may date an
// object by the beginning of its PutObject.
constexpr std::chrono::seconds kSurelyBefore{20};
constexpr std::chrono::minutes kSurelyBeforeIfSlow{2};
constexpr std::uint64_t kQuicklySent = std::uint64_t{1} << 20;
// A mount puts no more than this as one object, except with --part-size or --equal-parts, and to a store that asks to
// slow down. What is larger is then not judged by its date, which is the safe side.
constexpr std::uint64_t kSentAtOnce = kFirstPartSize;

// On Amazon S3 and most other stores the ETag ends with the number of parts then.
bool has_come_in_parts(const std::string& etag) {
    const std::size_t last = etag.find_last_not_of("0123456789\"");
    return last != std::string::npos && etag[last] == '-';
}

}  // namespace

// Amazon S3 dates what has come in parts by the beginning of its upload.
OtherVersion judge_other_version(const ObjectInfo& object, WallTime unlinked, bool dates_agree) {
    if (!dates_agree) {
        return OtherVersion::kUnknown;
    }
    if (object.last_modified > unlinked - kSurelyBefore) {
        return OtherVersion::kCameLater;
    }
    const bool may_have_been_slow = object.size > kQuicklySent && object.last_modified > unlinked - kSurelyBeforeIfSlow;
    const bool may_have_taken_long = may_have_been_slow || object.size > kSentAtOnce ||
                                     has_come_in_parts(object.etag) || object.last_modified == WallTime{};
    return may_have_taken_long ? OtherVersion::kUnknown : OtherVersion::kWasThere;
}

UnlinkBatches::UnlinkBatches(SharedState& state) : state_(state) {
    thread_ = start_thread("unlink-batch", [this] { work(); });
}

UnlinkBatches::~UnlinkBatches() {
    {
        const MutexLock lock(mutex_);
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
    const MutexLock lock(mutex_);
    return runs_.begins(directory->id, parent, state_.env.clock.now());
}

void UnlinkBatches::removal_ends(const NodePtr& directory) {
    const MutexLock lock(mutex_);
    runs_.ends(directory->id, state_.env.clock.now());
}

bool UnlinkBatches::is_running(NodeId directory) {
    const MutexLock lock(mutex_);
    return runs_.is_running(directory, state_.env.clock.now());
}

// --- filling

UnlinkBatches::Added UnlinkBatches::add(const NodePtr& directory, const std::string& name, const std::string& etag) {
    if (!state_.deletes->honoured()) {
        return Added::kNo;
    }
    const Removal removal{etag, state_.env.clock.wall_now()};
    std::string key;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        key = state_.key(lock, *directory);
        NodeTable::keep(lock, *directory);
    }
    bool is_opened = false;
    const Added added = add(directory, key, name, removal, is_opened);
    if (!is_opened) {
        const NodeTable::Lock lock = state_.nodes.lock();
        state_.nodes.forget(lock, directory, 1);
    }
    return added;
}

UnlinkBatches::Added UnlinkBatches::add(const NodePtr& directory, const std::string& key, const std::string& name,
                                        const Removal& removal, bool& is_opened) {
    const MutexLock lock(mutex_);
    if (stopping_ || state_.draining) {
        return Added::kNo;
    }
    if (const std::optional<Added> added = add_to_last(directory->id, name, removal)) {
        return *added;
    }
    const Added added = open_with(directory, key, name, removal);
    is_opened = added == Added::kYes;
    return added;
}

std::optional<UnlinkBatches::Added> UnlinkBatches::add_to_last(NodeId directory, const std::string& name,
                                                               const Removal& removal) {
    const auto found = batches_.find(directory);
    if (found == batches_.end()) {
        return std::nullopt;
    }
    Batch& last = *found->second.back();
    if (last.is_sent || last.names.size() >= kMaxNames) {
        return found->second.size() < kMaxBatches ? std::nullopt : std::optional(Added::kFull);
    }
    // The name does not wait for a commit that happens to be under way there: the batch would, too.
    if (!state_.key_order.add_if_alone(last.place, last.key + name)) {
        return Added::kNo;
    }
    last.names.emplace(name, removal);
    if (last.names.size() == kMaxNames) {
        last.due = SteadyTime{};
        changed_.notify_all();
    }
    return Added::kYes;
}

UnlinkBatches::Added UnlinkBatches::open_with(const NodePtr& directory, const std::string& key, const std::string& name,
                                              const Removal& removal) {
    const std::optional<KeyOrder::Place> place = state_.key_order.enter_if_alone(key + name);
    if (!place) {
        return Added::kNo;
    }
    Batch batch{directory, *place, key, {{name, removal}}, std::chrono::steady_clock::now() + kSendAfter, false, {}};
    batches_[directory->id].push_back(std::make_shared<Batch>(std::move(batch)));
    changed_.notify_all();
    return Added::kYes;
}

bool UnlinkBatches::removes(NodeId directory, const std::string& name) {
    const MutexLock lock(mutex_);
    const auto found = batches_.find(directory);
    return found != batches_.end() &&
           std::any_of(found->second.begin(), found->second.end(),
                       [&name](const BatchPtr& batch) { return batch->names.contains(name); });
}

std::optional<NodeId> UnlinkBatches::removes_below(const std::string& directory_key) const {
    const MutexLock lock(mutex_);
    const auto found = std::find_if(batches_.begin(), batches_.end(), [&directory_key](const auto& each) {
        return each.second.front()->key.starts_with(directory_key);
    });
    return found == batches_.end() ? std::nullopt : std::optional(found->first);
}

std::optional<Error> UnlinkBatches::take_failure(NodeId directory) {
    std::string key;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        const NodePtr node = state_.nodes.find(lock, directory);
        key = node == nullptr ? "" : state_.key(lock, *node);
    }
    const MutexLock lock(mutex_);
    const auto found = failures_.find(key);
    if (found == failures_.end()) {
        return std::nullopt;
    }
    Error error = std::move(found->second);
    failures_.erase(found);
    return error;
}

std::optional<Error> UnlinkBatches::take_failure_below(const std::string& directory_key) {
    const MutexLock lock(mutex_);
    const auto first = failures_.lower_bound(directory_key);
    auto behind = first;
    while (behind != failures_.end() && behind->first.starts_with(directory_key)) {
        ++behind;
    }
    if (first == behind) {
        return std::nullopt;
    }
    Error error = std::move(first->second);
    failures_.erase(first, behind);
    return error;
}

// --- waiting

void UnlinkBatches::when_settled(NodeId directory, std::function<void()> run) {
    {
        const MutexLock lock(mutex_);
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

void UnlinkBatches::sync(NodeId directory, Reply<void> reply) {
    when_settled(directory, [this, directory, reply = std::move(reply)] {
        std::optional<Error> failed = take_failure(directory);
        reply(failed ? failure(std::move(*failed)) : Status{});
    });
}

void UnlinkBatches::when_all_settled(std::function<void()> run) {
    {
        const MutexLock lock(mutex_);
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

std::uint64_t UnlinkBatches::under_way() const {
    const MutexLock lock(mutex_);
    std::uint64_t names = 0;
    for (const auto& [directory, batches] : batches_) {
        for (const BatchPtr& batch : batches) {
            names += batch->names.size();
        }
    }
    return names;
}

std::vector<std::string> UnlinkBatches::not_made() {
    const MutexLock lock(mutex_);
    std::vector<std::string> lines;
    for (const auto& [directory, batches] : batches_) {
        std::size_t names = 0;
        for (const BatchPtr& batch : batches) {
            names += batch->names.size();
        }
        lines.push_back(format("{}: removed names that may still be there: {}", batches.front()->key, names));
    }
    for (const auto& [key, error] : failures_) {
        lines.push_back(format("{}: removed names are still there: {}", key, error.message));
    }
    return lines;
}

// --- sending

void UnlinkBatches::work() {
    MutexLock lock(mutex_);
    for (;;) {
        SteadyTime next = SteadyTime::max();
        std::vector<BatchPtr> due;
        const SteadyTime now = std::chrono::steady_clock::now();
        for (auto& [directory, batches] : batches_) {
            // The next one goes when this one has been answered.
            const BatchPtr& batch = batches.front();
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
        if (stopping_) {
            return;
        }
        if (!due.empty()) {
            lock.unlock();
            for (const BatchPtr& batch : due) {
                send(batch);
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
    std::vector<RemoveRequest> requests;
    for (const auto& [name, removal] : batch->names) {
        requests.emplace_back(batch->key + name, removal.etag);
    }
    state_.env.store.remove_many(std::move(requests), [this, batch](Result<std::vector<DeleteFailure>> failures) {
        // What follows asks the store again.
        state_.env.blocking.post([this, batch, failures = std::move(failures)] { answered(batch, failures); });
    });
}

void UnlinkBatches::answered(const BatchPtr& batch, Result<std::vector<DeleteFailure>> failures) {
    std::optional<Error> failed;
    if (!failures) {
        failed = std::move(failures.error());
    } else {
        failed = first_failure(*batch, *failures);
    }
    if (failed) {
        log_error(escaped("what was removed from " + batch->key + " is still there: " + failed->message));
    } else {
        deleted_(batch->directory);
    }
    settle(batch, failed);
}

std::optional<Error> UnlinkBatches::first_failure(const Batch& batch, std::vector<DeleteFailure>& failures) {
    const auto other_versions = std::stable_partition(
        failures.begin(), failures.end(), [](const DeleteFailure& each) { return each.error.errno_value != ESTALE; });
    if (other_versions != failures.begin()) {
        return std::move(failures.front().error);
    }
    // The store says that another mount has written them: checks whether that is so, and when.
    const Status removed = for_each_in_parallel(
        failures.size(), kLooksAtOnce,
        [&](std::size_t index, const std::function<void(Status)>& done) { look_at(batch, failures[index], done); });
    return removed ? std::nullopt : std::optional(removed.error());
}

void UnlinkBatches::look_at(const Batch& batch, const DeleteFailure& failed, std::function<void(Status)> done) {
    const auto name = batch.names.find(failed.key.substr(std::min(batch.key.size(), failed.key.size())));
    if (name == batch.names.end()) {
        // A key in another spelling does not tell which one is still there.
        Error error = failed.error;
        error.errno_value = EIO;
        done(failure(std::move(error)));
        return;
    }
    const Removal removal = name->second;
    state_.env.store.head(failed.key, [this, failed, removal, done = std::move(done)](Result<ObjectInfo> object) {
        if (!object) {
            const bool is_gone = object.error().errno_value == ENOENT;
            done(is_gone ? Status{} : failure(std::move(object.error())));
            return;
        }
        if (object->etag == removal.etag) {
            Error error = failed.error;
            error.errno_value = EIO;
            done(failure(std::move(error)));
            return;
        }
        object->key = failed.key;
        switch (judge_other_version(*object, removal.unlinked, state_.deletes->dates_agree())) {
            case OtherVersion::kCameLater:
                done({});
                return;
            case OtherVersion::kWasThere:
                remove_other(*object, done);
                return;
            case OtherVersion::kUnknown:
                done(failure(EIO, failed.key +
                                      ": another mount has written it, maybe before it was removed here; if it "
                                      "is not wanted, remove it again"));
                return;
        }
    });
}

void UnlinkBatches::remove_other(const ObjectInfo& object, const std::function<void(Status)>& done) {
    state_.env.store.remove({object.key, object.etag}, [done](Status removed) {
        // By now there is yet another one, which came later.
        const bool is_replaced = !removed && removed.error().errno_value == ESTALE;
        done(is_replaced ? Status{} : std::move(removed));
    });
}

void UnlinkBatches::settle(const BatchPtr& batch, const std::optional<Error>& failed) {
    std::vector<std::function<void()>> waiting;
    {
        const MutexLock lock(mutex_);
        if (failed && failures_.size() < kMaxFailures) {
            failures_.insert_or_assign(batch->key, *failed);
        }
        const auto found = batches_.find(batch->directory->id);
        std::erase(found->second, batch);
        if (found->second.empty()) {
            batches_.erase(found);
        } else {
            changed_.notify_all();
        }
        waiting.swap(batch->waiting);
        if (batches_.empty()) {
            std::move(waiting_for_all_.begin(), waiting_for_all_.end(), std::back_inserter(waiting));
            waiting_for_all_.clear();
        }
    }
    state_.key_order.leave(batch->place);
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        state_.nodes.forget(lock, batch->directory, 1);
    }
    for (const std::function<void()>& run : waiting) {
        run();
    }
}

}  // namespace ckptfs::fs
