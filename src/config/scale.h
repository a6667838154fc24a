// SPDX-License-Identifier: Apache-2.0
// How large a mount makes itself where its user has not set it.
//
// Threads: a pure function of values.
#pragma once

#include "ckptfs/config.h"

namespace ckptfs {

// `config` with the numbers of threads and connections that suit so many processors, where it leaves them open (0), and
// with the parts and requests in flight that follow from the connections.
[[nodiscard]] Config scaled(Config config, int processors);

}  // namespace ckptfs
