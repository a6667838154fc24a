// SPDX-License-Identifier: Apache-2.0
// Time, passed in so that tests can move it by hand.
// Threads: all functions may be called from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace ckptfs {

using Milliseconds = std::chrono::milliseconds;
using Microseconds = std::chrono::microseconds;
using SteadyTime = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::system_clock::time_point;

class Clock {
public:
    virtual ~Clock() = default;
    [[nodiscard]] virtual SteadyTime now() const = 0;
    [[nodiscard]] virtual WallTime wall_now() const = 0;
};

// Runs a function later, on the timer's own thread; the function must be short (post to an Executor for more).
class Timer {
public:
    using Id = std::uint64_t;
    virtual ~Timer() = default;
    virtual Id after(Milliseconds delay, std::function<void()> run) = 0;
    // After it returns, the function has run, or will never run. Must not be called from inside the function.
    virtual void cancel(Id id) = 0;
};

}  // namespace ckptfs
