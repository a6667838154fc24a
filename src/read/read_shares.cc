// SPDX-License-Identifier: Apache-2.0
#include "read/read_shares.h"

#include <algorithm>

namespace ckptfs {

std::uint64_t ReadShares::share(const void* reader, std::size_t streams, SteadyTime now) {
    const MutexLock lock(mutex_);
    Reader& known = readers_[reader];
    streams_ = streams_ - known.streams + streams;
    known.streams = streams;
    known.last_read = now;
    if (now >= next_check_) {
        next_check_ = now + kActiveFor / 4;
        forget_idle(now);
    }
    // A reader that has no stream yet gets what it would get with one.
    const std::size_t mine = std::max<std::size_t>(streams, 1);
    return total_ * mine / std::max(streams_ - streams + mine, mine);
}

void ReadShares::leave(const void* reader) {
    const MutexLock lock(mutex_);
    const auto known = readers_.find(reader);
    if (known != readers_.end()) {
        streams_ -= known->second.streams;
        readers_.erase(known);
    }
}

void ReadShares::forget_idle(SteadyTime now) {
    std::erase_if(readers_, [&](const auto& entry) REQUIRES(mutex_) {
        const bool idle = entry.second.last_read + kActiveFor < now;
        streams_ -= idle ? entry.second.streams : 0;
        return idle;
    });
}

}  // namespace ckptfs
