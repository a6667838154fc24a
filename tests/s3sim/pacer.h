// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rate limits as a virtual clock: every reservation of bytes moves the clock on by bytes / rate, and the bytes may
// move once real time has reached it. Waiting is the caller's: these classes only compute times.
// Pacer is pure and belongs to one thread; SharedPacer may be used from any.

#include <chrono>
#include <cstdint>
#include <mutex>

namespace ckptfs::s3sim {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

class Pacer {
public:
    // 0 means no limit.
    explicit Pacer(double bytes_per_second = 0) : bytes_per_second_(bytes_per_second) {}

    void set_rate(double bytes_per_second) { bytes_per_second_ = bytes_per_second; }
    bool limited() const { return bytes_per_second_ > 0; }

    // Forgets unused time: a transfer that starts now gets no credit for the silence before it.
    void restart(TimePoint now) { next_ = now; }

    // When `bytes` may move. Reservations are granted in the order in which they are made.
    TimePoint reserve(std::uint64_t bytes, TimePoint now);

    // How much to reserve at a time: small enough for a smooth flow, large enough to cost little.
    std::uint64_t quantum() const;

private:
    double bytes_per_second_;
    TimePoint next_{};
};

class SharedPacer {
public:
    void set_rate(double bytes_per_second);
    TimePoint reserve(std::uint64_t bytes, TimePoint now);

private:
    std::mutex mutex_;
    Pacer pacer_;  // guarded by mutex_
};

}  // namespace ckptfs::s3sim
