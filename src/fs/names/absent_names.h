// SPDX-License-Identifier: Apache-2.0
// Names that a recent listing of a directory did not show. A lookup by a process that opens such a name with O_CREAT
// and O_TRUNC (ProcessInspector::makes_anew) needs no request of its own; any other lookup asks the bucket.
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
#include "fs/state/nodes.h"

namespace ckptfs::fs {

class AbsentNames {
public:
    struct Listing;
    using ListingPointer = std::shared_ptr<Listing>;

    // To be called before the request that lists the directory is sent: names that this mount puts there from now on
    // count as present.
    [[nodiscard]] ListingPointer listing_begins(NodeId directory, SteadyTime asked);
    // The directory had exactly these names.
    void listed(const ListingPointer& listing, std::vector<std::string> names);
    // The directory has more names than one page of a listing holds.
    void is_too_large(const ListingPointer& listing);

    // This mount has put something under the name, or seen something there.
    void taken(NodeId directory, const std::string& name);
    void forget(NodeId directory);
    [[nodiscard]] std::vector<NodeId> directories() const;

    // What a listing requested at `since` or later showed: that the directory lacks the name; that it is too large.
    [[nodiscard]] bool has_not(NodeId directory, const std::string& name, SteadyTime since) const;
    [[nodiscard]] bool was_too_large(NodeId directory, SteadyTime since) const;

private:
    // A job saves to a few directories at a time.
    static constexpr std::size_t kMostDirectories = 64;
    // A page of S3 has 1,000 names; the rest are names that this mount adds before the next listing.
    static constexpr std::size_t kMostNames = 4096;

    void keep(const ListingPointer& listing) REQUIRES(mutex_);

    mutable Mutex mutex_;
    std::map<NodeId, ListingPointer> known_ GUARDED_BY(mutex_);
    std::vector<std::weak_ptr<Listing>> under_way_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
