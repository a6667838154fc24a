// SPDX-License-Identifier: Apache-2.0
#pragma once

// For functions called from code for another instruction set: it is compiled for that set only where it is inlined.
#define CKPTFS_INLINE [[gnu::always_inline]] inline
