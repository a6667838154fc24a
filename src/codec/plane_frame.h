// SPDX-License-Identifier: Apache-2.0
// Plane frames: up to 1 MiB of a file, taken apart by what each byte of its elements means (ckptfs-format(5), "Plane
// frames").
//
// A frame is cut into sub-blocks with a layout each: how wide the elements are, where the first begins, and whether
// signs were moved. A sub-block's planes are coded one by one: raw, one repeated byte, or a standard zstd frame.
//
// A PlaneCoder holds memory that frames reuse, and belongs to one thread at a time. Equal input gives equal bytes, on
// every processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ckptfs/bytes.h"
#include "ckptfs/codec.h"
#include "ckptfs/status.h"

namespace ckptfs {

inline constexpr std::size_t kMaxPlaneFrameRaw = std::size_t{1} << 20;

// What the reference sub-blocks of a plane frame name, in their order (ckptfs-format(5), "Reference sub-blocks"), read
// from its headers without decoding it. `frame` begins at `offset` of the file. EIO where its headers are damaged, or
// name bytes that are not before it, or more than a frame may. Pure.
Result<std::vector<FileRange>> plane_references(ByteSpan frame, std::uint64_t offset);

class ReferenceIndex;

class PlaneCoder {
public:
    PlaneCoder();
    ~PlaneCoder();
    PlaneCoder(const PlaneCoder&) = delete;
    PlaneCoder& operator=(const PlaneCoder&) = delete;

    // What encode() needs room for; never more than raw_size + 1024.
    [[nodiscard]] static std::size_t bound(std::size_t raw_size);

    // The bytes written, or 0 where the frame would not be at least 1 % smaller than `raw`, which the caller then
    // stores as it is. raw: 1 byte to kMaxPlaneFrameRaw; out: at least bound(raw.size()).
    std::size_t encode(ByteSpan raw, MutableByteSpan out);

    // As encode(), of a frame at `offset` of a file of which `index` knows what stands before; the frame is added to
    // it.
    struct Encoded {
        std::size_t size = 0;
        // What plane_references() says of the frame; the bytes stand in `out` behind it.
        std::vector<FileRange> references;
    };
    // out: at least bound_in_file(raw.size()).
    Encoded encode_in_file(ByteSpan raw, std::uint64_t offset, ReferenceIndex& index, MutableByteSpan out);
    // Never more than raw_size + 4096.
    [[nodiscard]] static std::size_t bound_in_file(std::size_t raw_size);

    // EIO where `stored` does not decode to exactly raw.size() bytes; what `raw` holds then is undefined. `referenced`:
    // the bytes that plane_references() names, one range behind the other.
    Status decode(ByteSpan stored, const Payload& referenced, MutableByteSpan raw);

private:
    struct Memory;

    std::unique_ptr<Memory> memory_;
};

}  // namespace ckptfs
