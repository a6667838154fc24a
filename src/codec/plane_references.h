// SPDX-License-Identifier: Apache-2.0
// What the reference sub-blocks of a plane frame name, read from its headers without decoding it (ckptfs-format(5),
// "Reference sub-blocks"). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "ckptfs/bytes.h"
#include "ckptfs/codec.h"
#include "ckptfs/status.h"

namespace ckptfs {

// In the order of the sub-blocks. `frame`: a plane frame that begins at `offset` of the file. EIO where its headers are
// damaged, or name bytes that are not before it, or more than a frame may.
Result<std::vector<FileRange>> plane_references(ByteSpan frame, std::uint64_t offset);

}  // namespace ckptfs
