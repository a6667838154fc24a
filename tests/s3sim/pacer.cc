// SPDX-License-Identifier: Apache-2.0
#include "pacer.h"

#include <algorithm>

namespace ckptfs::s3sim {
namespace {

// A timer that fires late must not lower the rate, so this much lost time is made good.
constexpr Duration kLongestCredit = std::chrono::milliseconds(20);

constexpr std::uint64_t kSmallestQuantum = 16 * 1024;
constexpr std::uint64_t kLargestQuantum = 512 * 1024;
constexpr double kQuantumSeconds = 0.004;

}  // namespace

TimePoint Pacer::reserve(std::uint64_t bytes, TimePoint now) {
    if (!limited()) {
        return now;
    }
    const std::chrono::duration<double> cost(static_cast<double>(bytes) / bytes_per_second_);
    next_ = std::max(next_, now - kLongestCredit) + std::chrono::duration_cast<Duration>(cost);
    return next_;
}

std::uint64_t Pacer::quantum() const {
    if (!limited()) {
        return kLargestQuantum;
    }
    return std::clamp(static_cast<std::uint64_t>(bytes_per_second_ * kQuantumSeconds), kSmallestQuantum,
                      kLargestQuantum);
}

void SharedPacer::set_rate(double bytes_per_second) {
    const std::lock_guard lock(mutex_);
    pacer_.set_rate(bytes_per_second);
}

TimePoint SharedPacer::reserve(std::uint64_t bytes, TimePoint now) {
    const std::lock_guard lock(mutex_);
    return pacer_.reserve(bytes, now);
}

}  // namespace ckptfs::s3sim
