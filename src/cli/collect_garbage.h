// SPDX-License-Identifier: Apache-2.0
// `ckptfs gc`: finds what is invisible and paid for: uploads that were begun and neither completed nor ended, and files
// that were written out of order and never got their name. Ends and removes those that are nobody's, and the signs of
// mounts that are long gone.
//
// Threads: blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "cli/leftover_policy.h"

namespace ckptfs {

struct GarbageRequest {
    // Every key that begins with it.
    std::string prefix;
    Milliseconds older_than{0};
    // Else it is only told.
    bool end = false;
};

struct FoundLeftover {
    UploadId upload;
    // A whole object below .ckptfs/tmp/; `upload` has its key and no id.
    bool is_file = false;
    Leftover state = Leftover::kYoung;
    Milliseconds age{0};
    // Of the object, or of the parts that are in the store.
    std::uint64_t size = 0;
    // Or removed.
    bool ended = false;
    // Why it was not looked at, or not ended.
    std::string problem;
};

struct GarbageTotals {
    std::uint64_t uploads = 0;
    std::uint64_t files = 0;
    std::uint64_t size = 0;
    std::uint64_t abandoned = 0;
    std::uint64_t abandoned_size = 0;
    std::uint64_t ended = 0;
    std::uint64_t problems = 0;
    // Heartbeats of mounts that are gone.
    std::uint64_t dead_mounts = 0;
};

// `found` is called once for each, oldest first.
Result<GarbageTotals> collect_garbage(ObjectStore& store, const Clock& clock, const GarbageRequest& request,
                                      const std::function<void(const FoundLeftover&)>& found);

// A line each, without its end.
[[nodiscard]] std::string describe(const FoundLeftover& leftover);
[[nodiscard]] std::string describe(const GarbageTotals& totals);

// 1 where something could not be done.
[[nodiscard]] int exit_code(const GarbageTotals& totals);

}  // namespace ckptfs
