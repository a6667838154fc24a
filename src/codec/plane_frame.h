// SPDX-License-Identifier: Apache-2.0
// Plane frames: up to 1 MiB of a file, taken apart by what each byte of its elements means (ckptfs-format(5), "Plane
// frames").
//
// A frame is cut into sub-blocks with a layout each: how wide the elements are, where the first begins, and whether
// signs were moved. A sub-block's planes are coded one by one (plane_coding.h).
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

// The bytes that the reference sub-blocks of a plane frame name, in their order (ckptfs-format(5), "Reference
// sub-blocks"), read from its headers without decoding it. `frame` begins at `offset` of the file. EIO if its headers
// are damaged, or name bytes that are not before it, or more than a frame may. Pure.
Result<std::vector<FileRange>> plane_references(ByteSpan frame, std::uint64_t offset);

class ReferenceIndex;

class PlaneCoder {
public:
    PlaneCoder();
    ~PlaneCoder();
    PlaneCoder(const PlaneCoder&) = delete;
    PlaneCoder& operator=(const PlaneCoder&) = delete;

    // Size of the output that encode() needs; never more than raw_size + 1024.
    [[nodiscard]] static std::size_t bound(std::size_t raw_size);

    // Returns the bytes written, or 0 if the frame would not be at least 1 % smaller than `raw`, which the caller then
    // stores as it is. raw: 1 byte to kMaxPlaneFrameRaw; out: at least bound(raw.size()).
    std::size_t encode(ByteSpan raw, MutableByteSpan out);

    // The result of encode_in_file().
    struct Encoded {
        std::size_t size = 0;
        // What plane_references() returns for the frame; the bytes are in `out` after it.
        std::vector<FileRange> references;
    };
    // As encode(), for a frame at `offset` of a file. `index` knows what is before the frame, which is added to it.
    // out: at least bound_in_file(raw.size()).
    Encoded encode_in_file(ByteSpan raw, std::uint64_t offset, ReferenceIndex& index, MutableByteSpan out);
    // Size of the output that encode_in_file() needs; never more than raw_size + 4096.
    [[nodiscard]] static std::size_t bound_in_file(std::size_t raw_size);

    // EIO if `stored` does not decode to exactly raw.size() bytes; what `raw` holds then is undefined. `referenced`:
    // the bytes that plane_references() names, one range after the other.
    Status decode(ByteSpan stored, const Payload& referenced, MutableByteSpan raw);

private:
    struct Memory;

    std::unique_ptr<Memory> memory_;
};

}  // namespace ckptfs
