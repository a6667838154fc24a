// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace ckptfs::testing {

// Lets what waits go on when the test says so. Threads: all functions may be called from any thread.
class HeldWait {
public:
    void add(std::function<void()> then) {
        {
            const std::lock_guard lock(mutex_);
            ++asked_;
            if (held_) {
                waiting_.push_back(std::move(then));
                return;
            }
        }
        then();
    }
    // And holds nothing more.
    void release() {
        std::vector<std::function<void()>> waiting;
        {
            const std::lock_guard lock(mutex_);
            held_ = false;
            waiting.swap(waiting_);
        }
        for (const std::function<void()>& then : waiting) {
            then();
        }
    }
    // How often until now.
    [[nodiscard]] std::size_t asked() const {
        const std::lock_guard lock(mutex_);
        return asked_;
    }

private:
    mutable std::mutex mutex_;
    bool held_ = true;
    std::size_t asked_ = 0;
    std::vector<std::function<void()>> waiting_;
};

}  // namespace ckptfs::testing
