// SPDX-License-Identifier: Apache-2.0
// How much of a long test is run.
#pragma once

namespace ckptfs::testing {

// Sanitizers make everything five to twenty times as slow.
#ifdef CKPTFS_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace ckptfs::testing
