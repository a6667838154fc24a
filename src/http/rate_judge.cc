// SPDX-License-Identifier: Apache-2.0
#include "http/rate_judge.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace ckptfs {
namespace {

constexpr std::size_t kMostSamples = 64;
// Connections that share a link fairly differ by their round trips, not by this.
constexpr double kFarBelow = 1.0 / 32;
constexpr std::chrono::minutes kPast{1};
constexpr std::size_t kFewestOfThePast = 4;

}  // namespace

double RateWindow::rate() const {
    const double seconds = std::chrono::duration<double>(end - begin).count();
    return seconds > 0 ? static_cast<double>(std::max<std::int64_t>(bytes, 0)) / seconds : 0;
}

void RateJudge::saw(const RateWindow& window) {
    samples_.push_back({window.transfer, window.end, window.rate()});
    if (samples_.size() > kMostSamples) {
        samples_.pop_front();
    }
}

std::optional<double> RateJudge::usual_rate(std::uint64_t but, SteadyTime since, std::size_t fewest) const {
    std::vector<double> rates;
    for (const Sample& sample : samples_) {
        if (sample.transfer != but && sample.end > since) {
            rates.push_back(sample.rate);
        }
    }
    if (rates.empty() || rates.size() < fewest) {
        return std::nullopt;
    }
    const auto middle = rates.begin() + static_cast<std::ptrdiff_t>((rates.size() - 1) / 2);
    std::nth_element(rates.begin(), middle, rates.end());
    return *middle;
}

std::optional<double> RateJudge::crawls_beside(const RateWindow& window, bool by_the_past) {
    const auto is_far_below = [&](const std::optional<double>& usual) {
        return usual && window.rate() < *usual * kFarBelow;
    };
    // What ended in the first half may be from before the link became slow for all.
    if (const auto meanwhile = usual_rate(window.transfer, window.begin + (window.end - window.begin) / 2, 1)) {
        return is_far_below(meanwhile) ? meanwhile : std::nullopt;
    }
    const auto before = usual_rate(window.transfer, window.end - kPast, kFewestOfThePast);
    if (!by_the_past || !is_far_below(before)) {
        return std::nullopt;
    }
    samples_.erase(samples_.begin(), samples_.begin() + static_cast<std::ptrdiff_t>((samples_.size() + 1) / 2));
    return before;
}

}  // namespace ckptfs
