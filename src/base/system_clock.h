// SPDX-License-Identifier: Apache-2.0
// The machine's own clocks.
#pragma once

#include "ckptfs/clock.h"

namespace ckptfs {

class SystemClock final : public Clock {
public:
    [[nodiscard]] SteadyTime now() const override { return std::chrono::steady_clock::now(); }
    [[nodiscard]] WallTime wall_now() const override { return std::chrono::system_clock::now(); }
};

}  // namespace ckptfs
