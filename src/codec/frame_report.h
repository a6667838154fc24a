// SPDX-License-Identifier: Apache-2.0
// What one stored frame is made of, read from its headers without decoding it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ckptfs/bytes.h"
#include "ckptfs/status.h"
#include "codec/plane_frame_format.h"

namespace ckptfs {

enum class FrameKind : std::uint8_t {
    kZstd,
    // A zstd frame whose blocks are all stored as they are.
    kRawBlocks,
    kPlanes,
};
inline constexpr std::size_t kFrameKinds = static_cast<std::size_t>(FrameKind::kPlanes) + 1;

// The body of one plane of one sub-block. Opaque bytes are the only plane of elements of width 1.
struct StoredPlane {
    unsigned width = 1;
    unsigned plane = 0;
    plane_format::Coding coding = plane_format::Coding::kRaw;
    std::size_t size = 0;
    std::size_t stored_size = 0;
};

// The upper halves of floats that follow from bytes elsewhere in the file.
struct StoredReference {
    std::size_t size = 0;
    // The bytes that say where the bf16 is, and the exceptions.
    std::size_t stored_size = 0;
};

struct FrameReport {
    FrameKind kind = FrameKind::kZstd;
    // Bytes of skippable frames in front of the frame.
    std::size_t padding = 0;
    // Planes and references of a plane frame, in the order in which they are stored; the rest of its bytes are headers
    // and edges.
    std::vector<StoredPlane> planes;
    std::vector<StoredReference> references;
};

// `stored`: a frame as it is in a container. EIO if its headers are damaged; bodies are not checked.
Result<FrameReport> report_frame(ByteSpan stored);

}  // namespace ckptfs
