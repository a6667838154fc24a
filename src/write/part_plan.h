// SPDX-License-Identifier: Apache-2.0
// How large each part of a multipart upload is. Pure.
//
// Parts start small, so that uploading starts early, many connections work at once in little memory, and the wait in
// close() is short; they grow with their number, so that 10,000 of them hold a large file. A part never takes more than
// its share of the write budget: the file size that can be reached follows from that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckptfs/config.h"
#include "ckptfs/object_store.h"
#include "ckptfs/store_limits.h"

namespace ckptfs {

// At 90 MB/s a connection 8 MiB take 0.1 s: 40 of them in flight fill 2.5 GB/s from 320 MiB of memory.
inline constexpr std::uint64_t kFirstPartSize = std::uint64_t{8} << 20;
// Part numbers that may go to parts which are sent before they are full.
inline constexpr int kSpareParts = 200;

// Concurrency limit of a store that has asked to slow down (503), and how many files share it.
struct Slowdown {
    // Requests in flight at once; 0 if the store has not asked.
    int requests = 0;
    std::size_t files = 1;
};

class PartPlan {
public:
    // `write_budget`: bytes of the memory budget that file data may take; one part gets a quarter of it at most.
    PartPlan(const WriteConfig& config, std::uint64_t write_budget);

    // How many bytes part `number` (from 1) that begins at `offset` should hold before it is sent; whole frames.
    // `known_size`: of the whole object, 0 if unknown. If fewer requests may be in flight than would hold the budget,
    // each is larger: a fleet then finds the rate that a prefix tolerates without sending less.
    [[nodiscard]] std::uint64_t part_size(int number, std::uint64_t offset, std::uint64_t known_size,
                                          Slowdown slowdown = {}) const;

    // No file can grow larger than this. A file whose size is known in advance reaches further, because its parts start
    // larger.
    [[nodiscard]] std::uint64_t reachable_size() const { return reachable_size_; }
    [[nodiscard]] std::uint64_t reachable_size(std::uint64_t known_size) const;

    // No part is planned to be larger.
    [[nodiscard]] std::uint64_t largest_part() const { return largest_; }
    // All parts except the last have this size; 0 if sizes may differ.
    [[nodiscard]] std::uint64_t equal_size() const { return equal_size_; }

    // For the log: that --part-size is more than the budget allows; empty if it is not.
    [[nodiscard]] std::string lowered() const;

private:
    [[nodiscard]] std::uint64_t grown_size(int number) const;
    [[nodiscard]] std::uint64_t slowed_size(Slowdown slowdown) const;

    std::uint64_t write_budget_;
    std::uint64_t largest_;
    std::uint64_t equal_size_ = 0;
    bool is_lowered_ = false;
    // Parts before they start to grow; then they grow e-fold in as many again.
    int steady_parts_ = 0;
    std::uint64_t reachable_size_ = 0;
};

// Whether a part may end at `end` of the file if the next copied run begins at `next_copy` (0: there is none).
[[nodiscard]] bool leaves_a_part(std::uint64_t end, std::uint64_t next_copy);
// The size of a part that begins at `begin` of the file, so that what is left before `next_copy` is not too small for a
// part. In bytes of a plain file; those of a container take less, and a part that is too small is padded.
[[nodiscard]] std::uint64_t size_before_copy(std::uint64_t planned, std::uint64_t begin, std::uint64_t next_copy);

// What becomes of the committed object that a new upload starts from.
struct CopyPlan {
    // Copied within the store, as parts 1, 2, …; without a range if it is the whole object.
    struct Piece {
        std::uint64_t offset = 0;
        std::uint64_t length = 0;
    };
    std::vector<Piece> pieces;
    // From this offset on the object's bytes are fetched and sent again.
    std::uint64_t fetch_from = 0;
};

// Plans the first `keep` bytes of an object. UploadPartCopy takes parts of 5 MiB to 5 GiB, as UploadPart does.
[[nodiscard]] CopyPlan plan_copy(std::uint64_t keep, const PartPlan& plan);
// As plan_copy(): all of these bytes or none, whatever sizes parts have otherwise.
[[nodiscard]] CopyPlan plan_whole_copy(std::uint64_t keep);
// Plans `size` bytes of an object from `offset` on, one of several runs: all runs together take no more part numbers
// than the whole object would, and one for each.
[[nodiscard]] CopyPlan plan_run_copy(std::uint64_t offset, std::uint64_t size, std::uint64_t object_size);

}  // namespace ckptfs
