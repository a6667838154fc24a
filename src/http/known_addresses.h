// SPDX-License-Identifier: Apache-2.0
// The addresses at which hosts have answered, for the time in which no name server answers.
//
// Each new connection looks its host up, which spreads connections over a store's servers. When a lookup fails, the
// connections of the next minute go to addresses that answered before, and one request at a time tries the lookup
// again. They are known only after a first lookup: the first connection to a host needs its name server.
//
// Threads: all functions may be called from any thread. Time is passed in.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/clock.h"

namespace ckptfs {

class KnownAddresses {
public:
    // How long a failed lookup is not repeated: about the lifetime of a store's DNS answers.
    static constexpr Milliseconds kWithoutLookup{60'000};
    // How long the request that repeats it may take for this: more than the resolver's default of 10 s for a name
    // server.
    static constexpr Milliseconds kLongestLookup{30'000};
    // Most addresses of a host; Amazon S3 answers a lookup with up to 8. The one that answered longest ago is dropped
    // first.
    static constexpr std::size_t kMostOfHost = 16;
    // Most hosts; one each for the bucket, its region's name and the credentials' services would do.
    static constexpr std::size_t kMostHosts = 16;

    // A new connection was made. `address`: without brackets or port, as libcurl reports it. `looked_up`: it came from
    // a lookup.
    void connected(std::string_view authority, std::string_view address, bool looked_up);
    void lookup_failed(std::string_view authority, SteadyTime now);
    // None of what instead_of_lookup() gave could be reached.
    void unreachable(std::string_view authority);
    // The addresses to connect to; empty if the host is to be looked up.
    [[nodiscard]] std::vector<std::string> instead_of_lookup(std::string_view authority, SteadyTime now);

private:
    struct Host {
        // In the order in which they last answered.
        std::vector<std::string> addresses;
        // Present since a lookup failed: when to try again.
        std::optional<SteadyTime> look_up_at;
    };

    Mutex mutex_;
    std::map<std::string, Host, std::less<>> hosts_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
