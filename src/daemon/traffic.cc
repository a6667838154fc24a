// SPDX-License-Identifier: Apache-2.0
#include "daemon/traffic.h"

#include <chrono>

namespace ckptfs {

void TrafficMeter::add(SteadyTime now, const Traffic& totals) {
    samples_.push_back(Sample{now, totals});
    if (samples_.size() > kSamples) {
        samples_.pop_front();
    }
}

Traffic TrafficMeter::rates() const {
    if (samples_.size() < 2 || samples_.back().time <= samples_.front().time) {
        return {};
    }
    const Sample& first = samples_.front();
    const Sample& last = samples_.back();
    const double seconds = std::chrono::duration<double>(last.time - first.time).count();
    const auto rate = [seconds](std::uint64_t from, std::uint64_t to) {
        return to <= from ? 0 : static_cast<std::uint64_t>(static_cast<double>(to - from) / seconds);
    };
    return {rate(first.totals.written, last.totals.written), rate(first.totals.read, last.totals.read),
            rate(first.totals.sent, last.totals.sent), rate(first.totals.received, last.totals.received)};
}

}  // namespace ckptfs
