// SPDX-License-Identifier: Apache-2.0
// How much each reader may read ahead, so that all of them together stay within the memory for reads.
//
// Every sequential stream that was read from lately has an equal share. Time is passed in.
// Threads: all functions may be called from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>

#include "base/mutex.h"
#include "ckptfs/clock.h"

namespace ckptfs {

class ReadShares {
public:
    // A reader that computes between reads keeps its share this long.
    static constexpr std::chrono::seconds kActiveFor{2};

    explicit ReadShares(std::uint64_t total_blocks) : total_(total_blocks) {}

    // How many blocks `reader` (any stable address), which has this many sequential streams, may have ahead of it.
    std::uint64_t share(const void* reader, std::size_t streams, SteadyTime now);
    void leave(const void* reader);

private:
    struct Reader {
        std::size_t streams = 0;
        SteadyTime last_read{};
    };
    void forget_idle(SteadyTime now) REQUIRES(mutex_);

    const std::uint64_t total_;
    Mutex mutex_;
    std::map<const void*, Reader> readers_ GUARDED_BY(mutex_);
    std::size_t streams_ GUARDED_BY(mutex_) = 0;
    SteadyTime next_check_ GUARDED_BY(mutex_){};
};

}  // namespace ckptfs
