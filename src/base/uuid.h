// SPDX-License-Identifier: Apache-2.0
// Names that no other mount will ever choose.
// Threads: safe from any thread.
#pragma once

#include <string>

namespace ckptfs {

// RFC 9562 version 4, in lower case, from the kernel's random source.
[[nodiscard]] std::string random_uuid();

}  // namespace ckptfs
