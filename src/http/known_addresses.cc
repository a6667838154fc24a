// SPDX-License-Identifier: Apache-2.0
#include "http/known_addresses.h"

#include <algorithm>
#include <utility>

namespace ckptfs {

void KnownAddresses::connected(std::string_view authority, std::string_view address, bool looked_up) {
    const MutexLock lock(mutex_);
    auto host = hosts_.find(authority);
    if (host == hosts_.end()) {
        if (hosts_.size() >= kMostHosts) {
            return;
        }
        host = hosts_.emplace(authority, Host{}).first;
    }
    if (looked_up) {
        host->second.look_up_at.reset();
    }
    std::vector<std::string>& addresses = host->second.addresses;
    const auto known = std::find(addresses.begin(), addresses.end(), address);
    if (known != addresses.end()) {
        std::rotate(known, known + 1, addresses.end());
        return;
    }
    if (addresses.size() >= kMostOfHost) {
        addresses.erase(addresses.begin());
    }
    addresses.emplace_back(address);
}

void KnownAddresses::lookup_failed(std::string_view authority, SteadyTime now) {
    const MutexLock lock(mutex_);
    if (const auto host = hosts_.find(authority); host != hosts_.end()) {
        host->second.look_up_at = now + kWithoutLookup;
    }
}

void KnownAddresses::unreachable(std::string_view authority) {
    const MutexLock lock(mutex_);
    hosts_.erase(hosts_.lower_bound(authority), hosts_.upper_bound(authority));
}

std::vector<std::string> KnownAddresses::instead_of_lookup(std::string_view authority, SteadyTime now) {
    const MutexLock lock(mutex_);
    const auto host = hosts_.find(authority);
    if (host == hosts_.end() || !host->second.look_up_at) {
        return {};
    }
    if (now >= *host->second.look_up_at) {
        // Others use the known addresses until this lookup has a result.
        host->second.look_up_at = now + kLongestLookup;
        return {};
    }
    return host->second.addresses;
}

}  // namespace ckptfs
