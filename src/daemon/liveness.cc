// SPDX-License-Identifier: Apache-2.0
#include "daemon/liveness.h"

#include <utility>

#include "base/text.h"

namespace ckptfs {

Liveness::Liveness(Watched watched, Milliseconds patience) : watched_(std::move(watched)), patience_(patience) {}

Liveness::Probe Liveness::answered() {
    return std::make_shared<std::atomic<bool>>(true);
}

std::string Liveness::check() {
    if (const Milliseconds longest = watched_.longest_request(); longest > patience_) {
        return format("a request of the kernel has kept its thread for {} s", longest.count() / 1000);
    }
    if (!*executor_) {
        return format("no computation has begun for {} s", patience_.count() / 1000);
    }
    if (!*timer_) {
        return format("the timer has been late for {} s", patience_.count() / 1000);
    }
    executor_ = std::make_shared<std::atomic<bool>>(false);
    timer_ = std::make_shared<std::atomic<bool>>(false);
    watched_.executor.post([probe = executor_] { *probe = true; });
    watched_.timer.after(Milliseconds(0), [probe = timer_] { *probe = true; });
    return {};
}

}  // namespace ckptfs
