// SPDX-License-Identifier: Apache-2.0
// The one place that names the xxHash library. Pure functions; safe from any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "ckptfs/bytes.h"

namespace ckptfs {

// XXH64 with seed 0 (xxHash fast digest algorithm, version 0.1.1).
[[nodiscard]] std::uint64_t xxh64(ByteSpan bytes);
[[nodiscard]] std::uint64_t xxh64(const Payload& payload);
// XXH3, 64 bits: faster on short keys.
[[nodiscard]] std::uint64_t xxh3(std::string_view text);
// The same function for inputs of KiBs, by the widest vectors that this processor has.
[[nodiscard]] std::uint64_t xxh3_long(ByteSpan bytes);
[[nodiscard]] std::uint64_t xxh3_long(const Payload& payload);

}  // namespace ckptfs
