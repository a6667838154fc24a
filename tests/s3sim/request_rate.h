// SPDX-License-Identifier: Apache-2.0
#pragma once

// How many requests a second a prefix takes, as S3 counts them: what comes faster is refused, not queued. A value; time
// is passed in.

#include <algorithm>

#include "pacer.h"

namespace ckptfs::s3sim {

class RequestRate {
public:
    // 0 means no limit.
    void set_rate(double per_second) { per_second_ = per_second; }

    bool take(TimePoint now) {
        if (per_second_ <= 0) {
            return true;
        }
        // A tenth of a second's worth may come at once.
        const double most = std::max(1.0, per_second_ / 10);
        left_ = std::min(most, left_ + per_second_ * std::chrono::duration<double>(now - last_).count());
        last_ = now;
        if (left_ < 1) {
            return false;
        }
        left_ -= 1;
        return true;
    }

private:
    double per_second_ = 0;
    double left_ = 0;
    TimePoint last_{};
};

}  // namespace ckptfs::s3sim
