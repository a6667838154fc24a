// SPDX-License-Identifier: Apache-2.0
// What to fetch ahead of a reader that steps over the beginnings of a file's parts: torch.load(mmap=True) reads the
// header of every record, safetensors' load_file touches the first page of every tensor. Each step would wait for the
// store by itself. A policy without I/O, threads or time.
//
// A step is what is read around the beginning of a part. Once a step has gone to the part after the previous step, and
// the next one seems to, those that follow are assumed to be as long, and to begin as far before their parts.
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
    // How far before its part a step may begin. The kernel reads around a page that is touched, and half of that before
    // it: the mount's read-ahead of 8 MiB (daemon.cc) in all, or twice that after POSIX_FADV_SEQUENTIAL.
    static constexpr std::uint64_t kMaxLead = std::uint64_t{8} << 20;
    // The longest step: what the kernel reads around a page, and what follows a header in the same request. A longer
    // one reads more than a part's beginning.
    static constexpr std::uint64_t kMaxLength = 2 * kMaxLead + 2 * kFrameSize;
    // How far apart reads of one step may be: its pieces come in any order, and those that the kernel has do not come
    // at all.
    static constexpr std::uint64_t kApart = 4 * kFrameSize;

    explicit PartWalk(std::uint64_t block_count) : block_count_(block_count) {}

    // Returns what to fetch now, in order, unless it is in memory; most of it was returned at the previous step. size >
    // 0. `jumps`: the read does not continue where another read of the handle ended. `limit`: how many blocks may be
    // ahead.
    [[nodiscard]] std::vector<BlockSpan> on_read(std::uint64_t offset, std::uint64_t size, bool jumps,
                                                 const PartOffsets& parts, std::uint64_t limit);
    // Not all that on_read() returned is being fetched: the next read of the step returns it again.
    void not_fetched() { is_behind_ = true; }
    // Whether a read at `offset` belongs to a step, after whose end nothing will be read.
    [[nodiscard]] bool is_step(std::uint64_t offset) const;
    // The block after the end of that step; 0 if is_step() is false.
    [[nodiscard]] std::uint64_t end_of_step(std::uint64_t offset) const;

private:
    struct Step {
        std::uint64_t begin = 0;
        std::uint64_t end = 0;
        // Offset of the part that the step is expected to go to.
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
    // How many steps in a row went to their parts; then the length of the last step, and how far before its part it
    // began.
    int taken_ = 0;
    std::uint64_t length_ = 0;
    std::uint64_t lead_ = 0;
    bool is_behind_ = false;
};

}  // namespace ckptfs
