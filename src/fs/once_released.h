// SPDX-License-Identifier: Apache-2.0
// A function that runs once: when run() is called, or when the last owner of this object releases it.
//
// Threads: run() may be called from any thread; the function runs on the thread that is first.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

namespace ckptfs::fs {

class OnceReleased {
public:
    explicit OnceReleased(std::function<void()> function) : function_(std::move(function)) {}
    ~OnceReleased() { run(); }
    OnceReleased(const OnceReleased&) = delete;
    OnceReleased& operator=(const OnceReleased&) = delete;

    void run() {
        if (!ran_.exchange(true)) {
            std::exchange(function_, nullptr)();
        }
    }

private:
    std::atomic<bool> ran_ = false;
    std::function<void()> function_;
};

}  // namespace ckptfs::fs
