// SPDX-License-Identifier: Apache-2.0
// What a terminal is told (ECMA-48).
#pragma once

namespace ckptfs {

// To the first column, and the line is empty.
inline constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace ckptfs
