// SPDX-License-Identifier: Apache-2.0
// Which names a directory did not have when it was listed a moment ago, for a process that is about to make one of them
// anew: its lookup needs no request of its own. A process that only looks is told what the bucket says now.
//
// Threads: all functions may be called from any thread; the mutex is a leaf.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "fs/nodes.h"

namespace ckptfs::fs {

class AbsentNames {
public:
    struct Listing;
    using ListingPointer = std::shared_ptr<Listing>;

    // A request for all names of the directory is about to be sent. What this mount puts there from now on counts.
    [[nodiscard]] ListingPointer listing_begins(NodeId directory, SteadyTime asked);
    // These are all that were there.
    void listed(const ListingPointer& listing, std::vector<std::string> names);
    // There are more than one answer tells.
    void is_too_large(const ListingPointer& listing);

    // This mount has put something under the name, or seen something there.
    void taken(NodeId directory, const std::string& name);
    void forget(NodeId directory);
    [[nodiscard]] std::vector<NodeId> directories() const;

    // By a listing that was asked for since then.
    [[nodiscard]] bool has_not(NodeId directory, const std::string& name, SteadyTime since) const;
    [[nodiscard]] bool was_too_large(NodeId directory, SteadyTime since) const;

private:
    // A job saves to a few at a time.
    static constexpr std::size_t kMostDirectories = 64;
    // One answer of S3 tells of a thousand; the rest is what this mount adds until the next.
    static constexpr std::size_t kMostNames = 4096;

    void keep(const ListingPointer& listing) REQUIRES(mutex_);

    mutable Mutex mutex_;
    std::map<NodeId, ListingPointer> known_ GUARDED_BY(mutex_);
    std::vector<std::weak_ptr<Listing>> under_way_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
