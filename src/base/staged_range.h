// SPDX-License-Identifier: Apache-2.0
// Where bytes that had to leave memory lie in a staging file.
#pragma once

#include <cstdint>

namespace ckptfs {

struct StagedRange {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
};

}  // namespace ckptfs
