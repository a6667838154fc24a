// SPDX-License-Identifier: Apache-2.0
// Names that no other mount will ever choose.
// Threads: safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ckptfs {

inline constexpr std::size_t kUuidSize = 36;

// RFC 9562 version 4, in lower case, from the kernel's random source.
[[nodiscard]] std::string random_uuid();
[[nodiscard]] bool is_uuid(std::string_view text);

}  // namespace ckptfs
