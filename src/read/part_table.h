// SPDX-License-Identifier: Apache-2.0
// Where the parts of a file begin: the records of a zip file (torch.save, numpy.savez), the tensors of a safetensors
// file. Loaders step from one to the next, by distances that follow from nothing else.
//
// For read-ahead only: what a damaged or hostile table says costs requests, never a wrong byte. Pure; neither function
// looks outside the bytes it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ckptfs/bytes.h"

namespace ckptfs {

// Offsets in the file, ascending, each once.
using PartOffsets = std::vector<std::uint64_t>;

// Limits a file's table to 512 KiB of memory. A checkpoint has some thousands of parts.
inline constexpr std::size_t kMaxParts = 65'536;

// Offsets of the records' local headers (APPNOTE.TXT of PKWARE, 4.3). `end`: the last bytes of a file of `size` bytes.
// Empty if the whole file is not one zip file, or `end` lacks the beginning of its central directory.
[[nodiscard]] PartOffsets zip_records(ByteSpan end, std::uint64_t size);

// Offsets of the tensors' bytes (https://github.com/huggingface/safetensors, "Format"). `head`: the first bytes of a
// file of `size` bytes. Empty if the file has another format, or `head` lacks the end of its header.
[[nodiscard]] PartOffsets safetensors_tensors(ByteSpan head, std::uint64_t size);

}  // namespace ckptfs
