// SPDX-License-Identifier: Apache-2.0
// Control sequences of terminals (ECMA-48).
#pragma once

namespace ckptfs {

// Goes to the first column and clears the line.
inline constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace ckptfs
