// SPDX-License-Identifier: Apache-2.0
// What to fetch ahead of a reader that steps over the beginnings of a file's parts: torch.load(mmap=True) reads the
// header of every record, safetensors' load_file touches the first page of every tensor. Each step would wait for the
// store by itself. A policy without I/O, threads or time.
//
// A step is what is read around the beginning of a part. Once one has gone to the part behind the step before, and the
// next one seems to, those that follow are taken to be as long, and to begin as far before their parts.
//
// A value; not synchronised. Offsets and sizes in bytes of the file, spans in blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "ckptfs/codec.h"
#include "read/part_table.h"
#include "read/read_window.h"

namespace ckptfs {

class PartWalk {
public:
    // The kernel reads around a page that is touched: half of it before, where the file is read sequentially
    // (POSIX_FADV_SEQUENTIAL) twice the mount's read-ahead of 8 MiB (daemon.cc) in all.
    static constexpr std::uint64_t kMaxLead = std::uint64_t{8} << 20;
    // And what follows a header in the same request. A longer step is no look at a beginning.
    static constexpr std::uint64_t kMaxLength = 2 * kMaxLead + 2 * kFrameSize;
    // Pieces of one step come in any order, and perhaps not at all: the kernel has some.
    static constexpr std::uint64_t kApart = 4 * kFrameSize;

    explicit PartWalk(std::uint64_t block_count) : block_count_(block_count) {}

    // size > 0. `jumps`: it goes on where no read of the handle ended. `limit`: how many blocks may be ahead. To be
    // fetched now, in order, as far as it is not in memory; most of it was returned at the step before.
    [[nodiscard]] std::vector<BlockSpan> on_read(std::uint64_t offset, std::uint64_t size, bool jumps,
                                                 const PartOffsets& parts, std::uint64_t limit);
    // Not all of that is being fetched: the next read is told again.
    void not_fetched() { is_behind_ = true; }
    // It is part of a step, behind which nothing will be read.
    [[nodiscard]] bool is_step(std::uint64_t offset) const;
    // The block behind such a step; 0 where it is none.
    [[nodiscard]] std::uint64_t end_of_step(std::uint64_t offset) const;

private:
    struct Step {
        std::uint64_t begin = 0;
        std::uint64_t end = 0;
        // Where the part is that it is expected to go to.
        std::uint64_t part = kNowhere;
    };
    static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

    [[nodiscard]] bool is_of_step(std::uint64_t offset) const;
    void end_step();
    [[nodiscard]] bool may_go_to_part(std::uint64_t offset) const;
    [[nodiscard]] BlockSpan step_to(std::uint64_t part) const;
    [[nodiscard]] std::vector<BlockSpan> steps_ahead(const PartOffsets& parts, std::uint64_t limit);

    std::uint64_t block_count_;
    Step step_;
    // Steps in a row that went to their parts; of the last of them.
    int taken_ = 0;
    std::uint64_t length_ = 0;
    std::uint64_t lead_ = 0;
    bool is_behind_ = false;
};

}  // namespace ckptfs
