// SPDX-License-Identifier: Apache-2.0
// The requests of a mount that wait for their turn, in two lanes.
//
// Light requests carry almost no data (HEAD, lists, deletions, small objects) and programs wait for each: some places
// are reserved for them, so that neither a queue of parts nor parts that all hang hold up a stat. For the other places
// the older request goes first, whatever its lane, so that a flood of light requests does not stop a save. If none is
// reserved, as when the store tolerates a single request, or light ones fail over and over, the lanes take turns. In
// each lane those that failed before go first.
//
// A value without I/O; the owner guards it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "ckptfs/clock.h"
#include "s3/call.h"
#include "s3/concurrency_limit.h"

namespace ckptfs::s3 {

class RequestQueue {
public:
    // At most `most` requests are under way at once; `light_places` of the places are reserved for light ones.
    RequestQueue(int most, int light_places);

    void push(SharedCall call);
    // The next request, which is under way until ended(); null if none may begin.
    [[nodiscard]] SharedCall next();
    void ended(const Call& call);
    // Removes and returns all that wait.
    [[nodiscard]] std::vector<SharedCall> drain();

    // Adapts how many may be under way.
    [[nodiscard]] ConcurrencyLimit& limit() { return limit_; }
    [[nodiscard]] int most() const { return limit_.value(); }
    [[nodiscard]] int under_way() const { return light_.under_way + bulk_.under_way; }
    [[nodiscard]] std::size_t waiting() const { return light_.waiting.size() + bulk_.waiting.size(); }

private:
    struct Waiting {
        SharedCall call;
        std::uint64_t number = 0;
    };
    struct Lane {
        std::deque<Waiting> waiting;
        int under_way = 0;
    };
    [[nodiscard]] Lane* due_lane();
    [[nodiscard]] Lane& lane_of(const Call& call) { return call.is_light ? light_ : bulk_; }

    ConcurrencyLimit limit_;
    const int light_places_;
    Lane light_;
    Lane bulk_;
    // Whether the last request that began was light; the first turn is that of bulk.
    bool last_was_light_ = true;
    std::uint64_t pushed_ = 0;
};

// Judged by the operation; for GetObject, the operation itself knows how much it reads.
[[nodiscard]] bool is_light(const S3Request& request);

}  // namespace ckptfs::s3
