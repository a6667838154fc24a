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

// 512 KiB a file. A checkpoint has some thousands.
inline constexpr std::size_t kMaxParts = 65'536;

// Of the records' local headers (APPNOTE.TXT of PKWARE, 4.3). `end`: the last bytes of a file of `size` bytes. Empty
// where they do not end with a zip file that is the whole file, or lack the begin of its central directory.
[[nodiscard]] PartOffsets zip_records(ByteSpan end, std::uint64_t size);

// Of the tensors' bytes (https://github.com/huggingface/safetensors, "Format"). `head`: the first bytes of a file of
// `size` bytes. Empty where they are those of another format, or lack the end of its header.
[[nodiscard]] PartOffsets safetensors_tensors(ByteSpan head, std::uint64_t size);

}  // namespace ckptfs
