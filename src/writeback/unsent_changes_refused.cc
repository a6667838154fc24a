// SPDX-License-Identifier: Apache-2.0
// Refused changes (another client was faster): what was made of them, and what releases them.
#include <algorithm>
#include <map>
#include <utility>

#include "writeback/unsent_changes.h"

namespace ckptfs {
namespace {

// Two clients that claim the same names lose few at a time.
constexpr std::size_t kMostLost = 1'024;

bool is_made_of(const UnsentChange& change, const std::string& source, const std::string& version) {
    const auto is_source = [&](const std::string& key, const std::string& etag) {
        return key == source && etag == version;
    };
    return is_source(change.source_key, change.source_etag) ||
           std::any_of(change.body.begin(), change.body.end(),
                       [&](const BodyPiece& piece) { return is_source(piece.key, piece.etag); });
}

}  // namespace

UnsentChanges::MadeOf UnsentChanges::all_made_of(const HeldPtr& refused) const {
    MadeOf made{{refused}, {{refused->key(), true}}};
    for (const HeldPtr& each : order_.all()) {
        if (each->change.number <= refused->change.number) {
            continue;
        }
        const bool is_made_of_one =
            std::any_of(made.changes.begin(), made.changes.end(), [&each](const HeldPtr& earlier) {
                return is_made_of(each->change, earlier->key(), earlier->change.object.etag);
            });
        if (is_made_of_one) {
            made.changes.push_back(each);
        }
        if (is_made_of_one || made.is_there.contains(each->key())) {
            made.is_there[each->key()] = is_made_of_one;
        }
    }
    return made;
}

void UnsentChanges::note_lost(const HeldChange& held) {
    if (held.removes()) {
        return;
    }
    if (lost_.size() >= kMostLost) {
        lost_.pop_front();
    }
    lost_.emplace_back(held.key(), held.change.object.etag);
}

bool UnsentChanges::is_made_of_lost(const UnsentChange& change) const {
    return std::any_of(lost_.begin(), lost_.end(),
                       [&](const auto& version) { return is_made_of(change, version.first, version.second); });
}

// The refused change with what was made of it. Empty if one of these is still the last change of its key.
std::vector<UnsentChanges::HeldPtr> UnsentChanges::superseded(const HeldPtr& refused) const {
    MadeOf made = all_made_of(refused);
    const bool is_needed = std::any_of(made.is_there.begin(), made.is_there.end(),
                                       [this](const auto& name)
                                           REQUIRES(mutex_) { return name.second && !replaced_.contains(name.first); });
    return is_needed ? std::vector<HeldPtr>() : std::move(made.changes);
}

std::vector<UnsentChanges::HeldPtr> UnsentChanges::take_superseded() {
    std::vector<HeldPtr> all;
    std::erase_if(refused_, [this, &all](const auto& each) REQUIRES(mutex_) {
        const std::vector<HeldPtr> superseded = this->superseded(each.second);
        if (superseded.empty() || !order_.take(each.first)) {
            return false;
        }
        for (const HeldPtr& one : superseded) {
            static_cast<void>(order_.take(one->change.number));
        }
        all.insert(all.end(), superseded.begin(), superseded.end());
        return true;
    });
    return all;
}

void UnsentChanges::replaced_elsewhere(const std::string& key) {
    std::vector<HeldPtr> superseded;
    {
        const MutexLock lock(mutex_);
        if (overlay_.find(key) == nullptr) {
            return;
        }
        replaced_.insert(key);
        superseded = take_superseded();
    }
    give_up_superseded(superseded);
}

bool UnsentChanges::is_way_out(const std::string& key) const {
    const MutexLock lock(mutex_);
    return is_way_out_here(key);
}

bool UnsentChanges::is_way_out_here(const std::string& key) const {
    return std::any_of(refused_.begin(), refused_.end(), [this, &key](const auto& refused) REQUIRES(mutex_) {
        return all_made_of(refused.second).is_there.contains(key);
    });
}

void UnsentChanges::let_through(const std::string& key) {
    std::vector<Waiting> way_out;
    {
        const MutexLock lock(mutex_);
        way_out = take_waiting(key);
    }
    for (Waiting& each : way_out) {
        append(std::move(each));
    }
}

}  // namespace ckptfs
