// SPDX-License-Identifier: Apache-2.0
// The codec of a mount, as its options choose it. Every codec reads every object, whatever it writes.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "ckptfs/codec.h"
#include "ckptfs/config.h"
#include "ckptfs/status.h"

namespace ckptfs {

// EINVAL if --compress is not known. An object whose seek table takes more than an eighth of `max_memory` cannot be
// read (EFBIG), but its size can. Opening fails with ENOMEM if the tables of all files that are open, or being opened,
// would take more than a quarter of it, and more than 32 MiB; Codec::when_tables_are_short() sets what drops the tables
// of closed files before that.
[[nodiscard]] Result<std::unique_ptr<Codec>> make_codec(
    const CodecConfig& config, std::uint64_t max_memory = std::numeric_limits<std::uint64_t>::max());

// "xxh64" or "crc32c": the checksum that a container of this format has of every frame; empty if this version does not
// know the format.
[[nodiscard]] std::string frame_checksum_name(const std::string& format);

}  // namespace ckptfs
