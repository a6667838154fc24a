// SPDX-License-Identifier: Apache-2.0
// How large a mount makes itself where its user has not said it.
//
// Threads: a pure function of values.
#pragma once

#include "ckptfs/config.h"

namespace ckptfs {

// The same, with what suits so many processors wherever it leaves a number of threads or parts open.
[[nodiscard]] Config scaled(Config config, int processors);

}  // namespace ckptfs
