// SPDX-License-Identifier: Apache-2.0
#include "fs/failures/failed_siblings.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"
#include "fs/all_ended.h"
#include "fs/file_system.h"

namespace ckptfs::fs {

namespace {

// Commits of one file: of a record only 4 KiB are read.
constexpr std::ptrdiff_t kMostUnanswered = 32;

// Calls `then` once the result was called for each of `count`, and once more by the caller that counts them.
std::function<void()> joined(std::size_t count, std::function<void()> then) {
    auto all = std::make_shared<AllEnded>(count, [then = std::move(then)](const Status&) { then(); });
    return [all] { all->one_more({}); };
}

// Adds `more` to `ids` and keeps the latest of both; returns whether any of `more` was new.
bool add_unanswered(std::vector<std::string>& ids, const std::vector<std::string>& more) {
    const std::size_t before = ids.size();
    std::copy_if(more.begin(), more.end(), std::back_inserter(ids),
                 [&](const std::string& id) { return std::find(ids.begin(), ids.end(), id) == ids.end(); });
    const bool were_new = ids.size() > before;
    ids.erase(ids.begin(), ids.end() - std::min(std::ssize(ids), kMostUnanswered));
    return were_new;
}

}  // namespace

FailedSiblings::FailedSiblings(ObjectStore& store, Clock& clock, Timer& timer, RecordPlace place, FailureNotes notes,
                               const DiskAcknowledgement* acknowledging)
    : store_(store),
      clock_(clock),
      timer_(timer),
      place_(std::move(place)),
      notes_(std::move(notes)),
      acknowledging_(acknowledging) {}

// Describes the failure as other mounts see it. The version that stays may not be in the bucket yet: it resolves
// nothing when it comes.
void FailedSiblings::describe_to_others(FailedFile& file) const {
    if (acknowledging_ == nullptr || !file.etag_before || file.etag_before->empty()) {
        return;
    }
    std::string write_id = acknowledging_->unsent_write_id(file.key);
    if (write_id.empty()) {
        file.etag_before = acknowledging_->etag_there(file.key, *file.etag_before);
    } else {
        file.etag_before.reset();
        file.unanswered.push_back(std::move(write_id));
    }
}

FailedSiblings::~FailedSiblings() {
    Timer::Id tick = 0;
    {
        const MutexLock lock(mutex_);
        stopping_ = true;
        tick = ticking_ ? tick_ : 0;
    }
    if (tick != 0) {
        timer_.cancel(tick);
    }
}

std::string FailedSiblings::record_key(const std::string& key) const {
    return place_.prefix + std::string(kFailedPrefix) + key.substr(place_.prefix.size());
}

std::function<void()> FailedSiblings::in_time(std::function<void()> then) {
    struct Once {
        std::atomic<bool> called = false;
        std::function<void()> then;
    };
    auto once = std::make_shared<Once>();
    once->then = std::move(then);
    auto call = [once] {
        if (!once->called.exchange(true)) {
            std::exchange(once->then, nullptr)();
        }
    };
    timer_.after(kLongestWait, call);
    return call;
}

// --- changes

void FailedSiblings::add(FailedFile file) {
    describe_to_others(file);
    MutexLock lock(mutex_);
    auto [found, is_new] = entries_.try_emplace(file.key);
    Entry& entry = found->second;
    const bool failed_before = !is_new && !entry.cleared;
    const bool is_same_version =
        failed_before && entry.file.etag_before == file.etag_before && entry.file.opened == file.opened;
    // What an earlier attempt may have left still resolves nothing.
    std::vector<std::string> unanswered = failed_before ? entry.file.unanswered : std::vector<std::string>();
    if (!add_unanswered(unanswered, file.unanswered) && is_same_version) {
        return;
    }
    if (!is_same_version) {
        entry.intended_key.clear();
    }
    if (failed_before && !is_same_version) {
        entry.former = record_of(entry);
    } else if (!failed_before) {
        entry.former.reset();
    }
    entry.file = std::move(file);
    entry.file.unanswered = std::move(unanswered);
    entry.failed = clock_.wall_now();
    entry.failed_at = clock_.now();
    ++entry.failure_number;
    entry.cleared = entry.looked_at = entry.recorded = false;
    if (record_key(entry.file.key).size() > kMaxKeyBytes) {
        outbox_.add([key = entry.file.key] {
            log_warning(escaped(key) + ": other mounts cannot be told that it failed, the key is too long");
        });
        entry.recorded = true;
    } else {
        note(entry);
    }
    settle(found);
    make_room();
    start_ticking();
    outbox_.deliver(lock);
}

void FailedSiblings::clear(const std::string& key, std::function<void()> then) {
    clear_from_before(key, SteadyTime::max(), std::move(then));
}

void FailedSiblings::clear_from_before(const std::string& key, SteadyTime begun, std::function<void()> then) {
    MutexLock lock(mutex_);
    if (const auto found = entries_.find(key); found != entries_.end() && found->second.failed_at <= begun) {
        clear_entry(found, std::move(then));
    } else {
        outbox_.add(std::move(then));
    }
    outbox_.deliver(lock);
}

void FailedSiblings::clear_failure(const FailedRecord& failure) {
    MutexLock lock(mutex_);
    if (const auto found = entries_.find(failure.key);
        found != entries_.end() && found->second.failure_number == failure.number) {
        clear_entry(found, [] {});
    }
    outbox_.deliver(lock);
}

FailedSiblings::Entries::iterator FailedSiblings::first_below(const std::string& directory) {
    return entries_.lower_bound(directory);
}

void FailedSiblings::clear_below(const std::string& directory, std::function<void()> then) {
    MutexLock lock(mutex_);
    std::vector<Entries::iterator> found;
    for (auto each = first_below(directory); each != entries_.end() && each->first.starts_with(directory); ++each) {
        found.push_back(each);
    }
    const auto one_less = joined(found.size(), std::move(then));
    for (const auto each : found) {
        clear_entry(each, one_less);
    }
    outbox_.add(one_less);
    outbox_.deliver(lock);
}

void FailedSiblings::leave_recorded_below(const std::string& directory) {
    const MutexLock lock(mutex_);
    for (auto each = first_below(directory); each != entries_.end() && each->first.starts_with(directory);) {
        const auto entry = each++;
        if (entry->second.recorded && entry->second.may_exist && !entry->second.cleared && !entry->second.in_flight) {
            entries_.erase(entry);
        }
    }
}

void FailedSiblings::clear_entry(Entries::iterator entry, std::function<void()> then) {
    entry->second.cleared = true;
    entry->second.waiting.push_back(in_time(std::move(then)));
    settle(entry);
    answer_if_all_recorded();
}

void FailedSiblings::when_recorded(const std::string& key, std::function<void()> then) {
    MutexLock lock(mutex_);
    const auto found = entries_.find(key);
    if (found != entries_.end() && found->second.in_flight) {
        found->second.waiting.push_back(in_time(std::move(then)));
    } else {
        outbox_.add(std::move(then));
    }
    outbox_.deliver(lock);
}

void FailedSiblings::when_all_recorded(std::function<void()> then) {
    MutexLock lock(mutex_);
    waiting_for_all_.push_back(std::move(then));
    for (auto each = entries_.begin(); each != entries_.end();) {
        settle(each++);
    }
    answer_if_all_recorded();
    outbox_.deliver(lock);
}

bool FailedSiblings::all_recorded() const {
    return std::all_of(entries_.begin(), entries_.end(),
                       [](const auto& each) { return each.second.cleared || each.second.recorded; });
}

void FailedSiblings::answer_if_all_recorded() {
    if (!waiting_for_all_.empty() && all_recorded()) {
        for (std::function<void()>& then : std::exchange(waiting_for_all_, {})) {
            outbox_.add(std::move(then));
        }
    }
}

void FailedSiblings::was_to_become(const std::string& old_key, const std::string& new_key) {
    const MutexLock lock(mutex_);
    if (const auto found = entries_.find(old_key); found != entries_.end()) {
        found->second.intended_key = new_key;
    }
}

void FailedSiblings::renamed(const RenamedFile& renamed, std::function<void()> then) {
    MutexLock lock(mutex_);
    std::vector<Entries::iterator> made_good;
    for (auto each = entries_.begin(); each != entries_.end(); ++each) {
        if (each->first == renamed.new_key || each->second.intended_key == renamed.new_key) {
            made_good.push_back(each);
        }
    }
    if (const auto retried = retried_by(renamed); made_good.empty() && retried != entries_.end()) {
        made_good.push_back(retried);
    }
    const auto one_less = joined(made_good.size(), std::move(then));
    for (const auto each : made_good) {
        clear_entry(each, one_less);
    }
    outbox_.add(one_less);
    outbox_.deliver(lock);
}

FailedSiblings::Entries::iterator FailedSiblings::retried_by(const RenamedFile& renamed) {
    const std::string directory = directory_of(renamed.old_key);
    if (!is_temporary_name(file_name(renamed.old_key))) {
        return entries_.end();
    }
    return std::find_if(entries_.begin(), entries_.end(), [&](const auto& each) {
        const Entry& entry = each.second;
        return !entry.cleared && entry.file.host.empty() && directory_of(each.first) == directory &&
               is_temporary_name(file_name(each.first)) && renamed.opened >= entry.failed_at &&
               (entry.file.process == renamed.process || !renamed.runs(entry.file.process));
    });
}

void FailedSiblings::directory_renamed(const std::string& old_directory, const std::string& new_directory,
                                       std::function<void()> then) {
    std::vector<FailedFile> moved;
    {
        const MutexLock lock(mutex_);
        for (auto each = first_below(old_directory); each != entries_.end() && each->first.starts_with(old_directory);
             ++each) {
            const auto there = entries_.find(new_directory + each->first.substr(old_directory.size()));
            if (!each->second.cleared && (there == entries_.end() || there->second.cleared)) {
                moved.push_back(each->second.file);
                moved.back().since = moved.back().since.value_or(each->second.failed);
                // It has failed under this name since now: the directory counts as made by the rename.
                moved.back().ago = {};
            }
        }
    }
    const auto one_less = joined(moved.size(), std::move(then));
    for (FailedFile& file : moved) {
        file.key = new_directory + file.key.substr(old_directory.size());
        const std::string key = file.key;
        if (file.etag_before && !file.etag_before->empty()) {
            // The copy of that version may have another ETag. It is older than the record that is written now.
            file.etag_before.reset();
        }
        add(std::move(file));
        when_recorded(key, one_less);
    }
    clear_below(old_directory, one_less);
}

void FailedSiblings::make_room() {
    if (entries_.size() <= kMaxFiles) {
        return;
    }
    const auto known_elsewhere = std::find_if(entries_.begin(), entries_.end(), [](const auto& each) {
        return each.second.recorded && !each.second.cleared && !each.second.in_flight;
    });
    if (known_elsewhere != entries_.end()) {
        entries_.erase(known_elsewhere);
        return;
    }
    const auto forgotten =
        std::find_if(entries_.begin(), entries_.end(), [](const auto& each) { return !each.second.in_flight; });
    if (forgotten != entries_.end()) {
        outbox_.add([key = forgotten->first] {
            log_error(escaped(key) + " failed and is no longer tracked: too many files have failed");
        });
        end_note(forgotten->second);
        entries_.erase(forgotten);
    }
}

// --- time

void FailedSiblings::start_ticking() {
    if (!ticking_ && !stopping_) {
        ticking_ = true;
        tick_ = timer_.after(kTick, [this] { tick(); });
    }
}

void FailedSiblings::looked_at(const std::string& key) {
    const MutexLock lock(mutex_);
    if (const auto found = entries_.find(key); found != entries_.end()) {
        found->second.looked_at = true;
    }
}

// The record of a failure on another mount, in a directory that was renamed here, stays: it may count there for longer.
void FailedSiblings::expire(Entry& entry) {
    const bool is_anothers = !entry.file.host.empty();
    if (entry.cleared || (is_anothers && !entry.recorded)) {
        return;
    }
    entry.cleared = true;
    entry.may_exist = entry.may_exist && !is_anothers;
}

void FailedSiblings::tick() {
    MutexLock lock(mutex_);
    ticking_ = false;
    const SteadyTime now = clock_.now();
    for (auto each = entries_.begin(); each != entries_.end();) {
        const auto entry = each++;
        if (now - entry->second.failed_at > place_.ttl) {
            expire(entry->second);
        }
        if (entry->second.next_try <= now) {
            settle(entry);
        }
    }
    if (!entries_.empty()) {
        start_ticking();
    }
    answer_if_all_recorded();
    outbox_.deliver(lock);
}

}  // namespace ckptfs::fs
