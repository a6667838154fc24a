// SPDX-License-Identifier: Apache-2.0
#include "s3/concurrency_limit.h"

#include <algorithm>

namespace ckptfs::s3 {

ConcurrencyLimit::ConcurrencyLimit(int min, int max) : min_(min), max_(max), exact_(max) {}

void ConcurrencyLimit::on_success() {
    exact_ = std::min<double>(max_, exact_ + 1.0 / exact_);
}

void ConcurrencyLimit::on_slow_down(SteadyTime request_sent, SteadyTime now) {
    if (request_sent < last_halved_) {
        return;
    }
    exact_ = std::max<double>(min_, exact_ / 2);
    last_halved_ = now;
}

}  // namespace ckptfs::s3
