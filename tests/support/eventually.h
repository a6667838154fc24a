// SPDX-License-Identifier: Apache-2.0
// For what another thread is about to do.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace ckptfs::testing {

// Far beyond what a busy machine with sanitizers needs.
inline constexpr std::chrono::seconds kEventually{30};

[[nodiscard]] inline bool eventually(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + kEventually;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline) {
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

}  // namespace ckptfs::testing
