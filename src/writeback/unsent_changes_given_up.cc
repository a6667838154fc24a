// SPDX-License-Identifier: Apache-2.0
// Markers that were given up, and the notes of them in the log, from which the next mount knows them.
#include <algorithm>
#include <chrono>
#include <map>
#include <utility>
#include <variant>

#include "writeback/unsent_changes.h"

namespace ckptfs {

namespace {

bool makes_good(const UnsentChange& change, const GivenUpChange& marker) {
    const bool removes_directory = change.kind == UnsentChange::Kind::kRemove && change.object.key.ends_with('/');
    return change.number > marker.number &&
           (change.object.key == marker.key || (removes_directory && marker.key.starts_with(change.object.key)));
}

}  // namespace

// Reports the marker before the waits for it end.
void UnsentChanges::give_up_marker(const HeldPtr& held, const Error& why) {
    tell_not_made(*held, why);
    remember_given_up(held->key(), held->change.number, Milliseconds(0));
    tell_lost(held->key(), why);
    HeldPtr there;
    {
        const MutexLock lock(mutex_);
        there = overlay_.find(held->key());
    }
    if (there != held && there != nullptr) {
        acknowledged_anew(*there);
    }
    give_up(held);
}

void UnsentChanges::acknowledged_anew(const HeldChange& held) const {
    if (environment_.given_up == nullptr) {
        return;
    }
    if (held.removes() && held.key().ends_with('/')) {
        for (const std::string& key : environment_.given_up->directory_removed(held.key())) {
            made_good(key);
        }
    } else if (environment_.given_up->made_good(held.key())) {
        made_good(held.key());
    }
}

void UnsentChanges::remember_given_up(const std::string& key, std::uint64_t number, Milliseconds age) {
    {
        // Before it can be forgotten.
        const MutexLock lock(mutex_);
        given_up_.insert(number);
    }
    if (environment_.given_up == nullptr || !environment_.given_up->add(key, age, number, forget_given_up_)) {
        forget_given_up(number);
    }
}

void UnsentChanges::forget_given_up(std::uint64_t number) {
    const MutexLock lock(mutex_);
    given_up_.erase(number);
    if (!stopping_) {
        // If this is not written, the marker is reported for longer than needed.
        log_->sent({number, "", "", ""}, [](const Status&) {});
    }
}

void UnsentChanges::append_note(const std::string& key, const SentChange& change, std::function<void(Status)> done) {
    const MutexLock lock(mutex_);
    if (given_up_.contains(change.number)) {
        log_->given_up({change.number, key, environment_.clock.wall_now()}, std::move(done));
    } else {
        log_->sent(change, std::move(done));
    }
}

void UnsentChanges::take_over_given_up(const std::vector<LogEntry>& entries) {
    std::map<std::uint64_t, GivenUpChange> markers;
    for (const LogEntry& entry : entries) {
        if (const auto* const marker = std::get_if<GivenUpChange>(&entry)) {
            markers.insert_or_assign(marker->number, *marker);
        } else if (std::holds_alternative<SentChange>(entry)) {
            markers.erase(number_of(entry));
        }
    }
    for (const auto& [number, marker] : markers) {
        const bool is_made_good = std::any_of(entries.begin(), entries.end(), [&each = marker](const LogEntry& entry) {
            const auto* const change = std::get_if<UnsentChange>(&entry);
            return change != nullptr && makes_good(*change, each);
        });
        if (is_made_good) {
            forget_given_up(number);
            continue;
        }
        const auto age = std::chrono::duration_cast<Milliseconds>(environment_.clock.wall_now() - marker.since);
        remember_given_up(marker.key, number, std::max(age, Milliseconds(0)));
    }
}

}  // namespace ckptfs
