// SPDX-License-Identifier: Apache-2.0
#include "fs/names/absent_names.h"

#include <algorithm>
#include <utility>

namespace ckptfs::fs {

// Guarded by AbsentNames::mutex_.
struct AbsentNames::Listing {
    NodeId directory = 0;
    SteadyTime asked{};
    std::unordered_set<std::string> names{};
    bool is_too_large = false;
    // The directory was renamed while the listing was under way.
    bool is_void = false;
};

AbsentNames::ListingPointer AbsentNames::listing_begins(NodeId directory, SteadyTime asked) {
    auto listing = std::make_shared<Listing>();
    listing->directory = directory;
    listing->asked = asked;
    const MutexLock lock(mutex_);
    std::erase_if(under_way_, [](const auto& each) { return each.expired(); });
    under_way_.push_back(listing);
    return listing;
}

void AbsentNames::listed(const ListingPointer& listing, std::vector<std::string> names) {
    const MutexLock lock(mutex_);
    listing->names.insert(std::make_move_iterator(names.begin()), std::make_move_iterator(names.end()));
    keep(listing);
}

void AbsentNames::is_too_large(const ListingPointer& listing) {
    const MutexLock lock(mutex_);
    listing->is_too_large = true;
    keep(listing);
}

void AbsentNames::keep(const ListingPointer& listing) {
    std::erase_if(under_way_, [&listing](const auto& each) { return each.expired() || each.lock() == listing; });
    const auto known = known_.find(listing->directory);
    if (listing->is_void || (known != known_.end() && known->second->asked > listing->asked)) {
        return;
    }
    if (known == known_.end() && known_.size() >= kMostDirectories) {
        known_.erase(std::min_element(known_.begin(), known_.end(), [](const auto& one, const auto& other) {
            return one.second->asked < other.second->asked;
        }));
    }
    known_[listing->directory] = listing;
}

void AbsentNames::taken(NodeId directory, const std::string& name) {
    const MutexLock lock(mutex_);
    for (const std::weak_ptr<Listing>& each : under_way_) {
        const ListingPointer listing = each.lock();
        if (listing && listing->directory == directory) {
            listing->names.insert(name);
        }
    }
    const auto known = known_.find(directory);
    if (known == known_.end()) {
        return;
    }
    known->second->names.insert(name);
    if (known->second->names.size() > kMostNames) {
        known_.erase(known);
    }
}

void AbsentNames::forget(NodeId directory) {
    const MutexLock lock(mutex_);
    for (const std::weak_ptr<Listing>& each : under_way_) {
        const ListingPointer listing = each.lock();
        if (listing && listing->directory == directory) {
            listing->is_void = true;
        }
    }
    known_.erase(directory);
}

std::vector<NodeId> AbsentNames::directories() const {
    const MutexLock lock(mutex_);
    std::vector<NodeId> ids;
    for (const auto& [id, listing] : known_) {
        ids.push_back(id);
    }
    for (const std::weak_ptr<Listing>& each : under_way_) {
        if (const ListingPointer listing = each.lock()) {
            ids.push_back(listing->directory);
        }
    }
    return ids;
}

bool AbsentNames::has_not(NodeId directory, const std::string& name, SteadyTime since) const {
    const MutexLock lock(mutex_);
    const auto known = known_.find(directory);
    return known != known_.end() && known->second->asked >= since && !known->second->is_too_large &&
           !known->second->names.contains(name);
}

bool AbsentNames::was_too_large(NodeId directory, SteadyTime since) const {
    const MutexLock lock(mutex_);
    const auto known = known_.find(directory);
    return known != known_.end() && known->second->asked >= since && known->second->is_too_large;
}

}  // namespace ckptfs::fs
