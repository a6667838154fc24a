// SPDX-License-Identifier: Apache-2.0
#pragma once

// For what a function of another instruction set calls: it is compiled for that set only where it is inlined.
#define CKPTFS_INLINE [[gnu::always_inline]] inline
