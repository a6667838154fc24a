// SPDX-License-Identifier: Apache-2.0
// The file that frames of the corpus refer to: what looks like bf16, made from the place of each byte, so that a frame
// with references can be decoded without the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ckptfs/bytes.h"
#include "ckptfs/codec.h"

namespace ckptfs {

inline char referenced_byte(std::uint64_t offset) {
    const std::uint64_t hash = (offset + 1) * 0x9e3779b97f4a7c15 >> 40;
    return static_cast<char>(offset % 2 == 0 ? hash : 0x3c | (hash & 1));
}

inline Payload referenced_bytes(const std::vector<FileRange>& ranges) {
    std::string bytes;
    for (const FileRange& range : ranges) {
        for (std::uint64_t offset = range.offset; offset < range.end(); ++offset) {
            bytes += referenced_byte(offset);
        }
    }
    return Payload::from_string(std::move(bytes));
}

}  // namespace ckptfs
