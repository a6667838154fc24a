// SPDX-License-Identifier: Apache-2.0
#include "fs/moves/rename_repairs.h"

#include <utility>

#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"
#include "fs/moves/rename_record.h"
#include "fs/moves/rename_recovery.h"

namespace ckptfs::fs {

namespace {

// Markers and records beyond these limits are examined when they are met again.
constexpr std::size_t kMaxChecks = 1000;
constexpr std::size_t kMaxStrangers = 1000;

std::string without_slash(const std::string& directory) {
    return directory.substr(0, directory.size() - 1);
}

}  // namespace

bool RenameRepairs::hides(const ObjectInfo& marker) {
    if (!may_hide_directory(marker.size)) {
        return false;
    }
    {
        const MutexLock lock(mutex_);
        if (strangers_.contains(marker.etag)) {
            return false;
        }
    }
    meet(marker.key);
    return true;
}

void RenameRepairs::met_record(const std::string& key) {
    meet(key);
}

void RenameRepairs::holder_is_dead(const std::string& record_key) {
    {
        const MutexLock lock(mutex_);
        dead_.try_emplace(record_key, Dead{state_.env.clock.now(), std::nullopt});
        // Forgets what was found before this was known.
        checks_.erase(record_key);
    }
    meet(record_key);
}

RenameRepairs::~RenameRepairs() {
    std::vector<Timer::Id> timers;
    {
        const MutexLock lock(mutex_);
        stopping_ = true;
        for (const auto& [key, dead] : dead_) {
            if (dead.timer) {
                timers.push_back(*dead.timer);
            }
        }
    }
    for (const Timer::Id timer : timers) {
        state_.env.timer.cancel(timer);
    }
}

bool RenameRepairs::is_record(const std::string& key) const {
    return key.starts_with(state_.env.prefix + std::string(kRenamesPrefix));
}

void RenameRepairs::meet(const std::string& key) {
    {
        const MutexLock lock(mutex_);
        const SteadyTime now = state_.env.clock.now();
        if (checks_.size() >= kMaxChecks && !checks_.contains(key)) {
            // Renames that have ended are not met again.
            std::erase_if(checks_, [now](const auto& each) { return each.second.is_over(now); });
        }
        const auto found = checks_.find(key);
        if (found == checks_.end() ? checks_.size() >= kMaxChecks : !found->second.is_over(now)) {
            return;
        }
        checks_[key].under_way = true;
    }
    state_.env.blocking.post([this, key] { looked_into(key, look_into(key)); });
}

void RenameRepairs::looked_into(const std::string& key, std::optional<Milliseconds> again) {
    const MutexLock lock(mutex_);
    const auto dead = dead_.find(key);
    if (!again) {
        checks_.erase(key);
        if (dead != dead_.end()) {
            dead_.erase(dead);
        }
        return;
    }
    checks_[key] = Check{false, state_.env.clock.now() + *again};
    if (dead != dead_.end() && !stopping_) {
        dead->second.timer = state_.env.timer.after(*again, [this, key] { meet(key); });
    }
}

std::optional<Milliseconds> RenameRepairs::look_into(const std::string& key) {
    const Milliseconds repair_after = state_.env.names.rename_repair_after;
    const Result<StoredMarker> stored = read_marker(state_.env.bucket(), state_.env.clock, key);
    if (!stored) {
        return stored.error().errno_value == ENOENT ? std::nullopt : std::optional(repair_after);
    }
    const bool belongs_here =
        stored->marker && (is_record(key) ? record_key(*stored->marker) == key : marks(*stored->marker, key));
    if (!belongs_here) {
        const MutexLock lock(mutex_);
        if (strangers_.size() >= kMaxStrangers) {
            strangers_.clear();
        }
        strangers_.insert(stored->etag);
        return is_record(key) ? std::optional(repair_after) : std::nullopt;
    }
    if (stored->marker->prefix != state_.env.prefix) {
        // Its record is out of this mount's sight.
        return repair_after;
    }
    return look_into(*stored->marker, stored->age);
}

std::optional<Milliseconds> RenameRepairs::look_into(const DirectoryMarker& rename, Milliseconds marker_age) {
    const Milliseconds repair_after = state_.env.names.rename_repair_after;
    const Result<StoredMarker> read = read_marker(state_.env.bucket(), state_.env.clock, record_key(rename));
    if (!read && read.error().errno_value != ENOENT) {
        return repair_after;
    }
    std::optional<StoredMarker> record;
    if (read && read->marker && read->marker->rename_id == rename.rename_id) {
        record = *read;
    }
    RepairFacts facts;
    facts.age = marker_age;
    facts.repair_after = repair_after;
    if (record) {
        facts.record = record->marker->state;
        facts.age = record->age;
        facts.dead_for = holder_dead_for(*record->marker);
    }
    const RepairDecision decision = decide_repair(facts);
    if (decision.action == RepairAction::kWait) {
        return decision.wait;
    }
    if (!state_.env.names.read_only && !state_.draining) {
        start_repair(rename, record, decision);
    }
    return repair_after;
}

std::optional<Milliseconds> RenameRepairs::holder_dead_for(const DirectoryMarker& record) {
    if (record.writer_id != record.rename_id) {
        return std::nullopt;
    }
    const MutexLock lock(mutex_);
    const auto dead = dead_.find(record_key(record));
    return dead == dead_.end()
               ? std::nullopt
               : std::optional(std::chrono::duration_cast<Milliseconds>(state_.env.clock.now() - dead->second.known));
}

void RenameRepairs::start_repair(const DirectoryMarker& rename, const std::optional<StoredMarker>& record,
                                 const RepairDecision& decision) {
    const KeyOrder::Place place =
        state_.key_order.enter({without_slash(rename.source), without_slash(rename.destination)});
    state_.key_order.when_first(place, [this, rename, record, decision, place] {
        state_.env.blocking.post([this, rename, record, decision, place] {
            const bool forward = decision.action == RepairAction::kFinish;
            const Status repaired = repair(rename, record, decision);
            state_.key_order.leave(place);
            const std::string what = "the unfinished rename of " + rename.source + " to " + rename.destination;
            if (repaired) {
                log_warning(escaped(what + (forward ? " was finished" : " was undone")));
            } else if (is_lost_race(repaired.error())) {
                log_info(escaped(what + " is repaired by another mount"));
            } else {
                log_error(escaped(what + " could not be repaired: " + repaired.error().message));
            }
        });
    });
}

Status RenameRepairs::repair(const DirectoryMarker& rename, const std::optional<StoredMarker>& record,
                             const RepairDecision& decision) {
    RenameRecord held(state_.env.bucket(), state_.env.clock, state_.env.names.rename_repair_after);
    Status taken = record ? held.take_over(*record, decision.record) : held.make_anew(rename, decision.record);
    if (!taken) {
        return taken;
    }
    if (Status sent = gate_.wait_for_unsent(rename.source); !sent) {
        return sent;
    }
    // What the record says is newer than a marker.
    if (Status ended = end(held.rename(), decision.action, record.has_value(), [&held] { return !held.lost(); });
        !ended) {
        return ended;
    }
    return held.remove();
}

Status RenameRepairs::end(const DirectoryMarker& rename, RepairAction action, bool had_record,
                          const MayGoOn& may_go_on) {
    ObjectStore& store = state_.env.bucket();
    const Result<NameList> names = read_names(store, names_key(rename));
    if (!names) {
        return failure(names.error());
    }
    const RemovalTerms terms{state_.deletes->find_out(), may_go_on};
    if (action != RepairAction::kFinish) {
        return had_record ? roll_back(store, state_.env.clock, rename, *names, terms)
                          : roll_back_without_record(store, state_.env.clock, rename, *names, terms);
    }
    return finish(store, state_.env.clock, rename, *names, terms, [&] { return move_failures(rename); });
}

Status RenameRepairs::move_failures(const DirectoryMarker& rename) {
    const Result<std::vector<FailedRecord>> failures = gate_.failures_below(rename.source);
    if (!failures) {
        return failure(failures.error());
    }
    gate_.move_failures(*failures, rename.source, rename.destination);
    // Also what has failed on this mount since.
    state_.failed.directory_renamed(rename.source, rename.destination, [] {});
    return {};
}

}  // namespace ckptfs::fs
