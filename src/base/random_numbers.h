// SPDX-License-Identifier: Apache-2.0
// Random numbers for delays that should not coincide. Not for secrets.
#pragma once

#include <functional>
#include <random>

namespace ckptfs {

// Numbers in [0, 1). Threads: used by one at a time.
[[nodiscard]] inline std::function<double()> random_numbers() {
    return [engine = std::mt19937_64(std::random_device()())]() mutable {
        return std::uniform_real_distribution<double>(0.0, 1.0)(engine);
    };
}

}  // namespace ckptfs
