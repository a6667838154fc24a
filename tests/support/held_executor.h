// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "ckptfs/executor.h"

namespace ckptfs::testing {

// Runs tasks when the test says so, until then at once; and counts those that were to come before others.
class HeldExecutor : public Executor {
public:
    void post(std::function<void()> task) override { add(std::move(task), ordinary_); }
    void post_urgent(std::function<void()> task) override { add(std::move(task), urgent_); }
    // Posted so far, each of one kind.
    [[nodiscard]] std::size_t ordinary() {
        const std::lock_guard lock(mutex_);
        return ordinary_;
    }
    [[nodiscard]] std::size_t urgent() {
        const std::lock_guard lock(mutex_);
        return urgent_;
    }
    void hold() {
        const std::lock_guard lock(mutex_);
        held_ = true;
    }
    // False after ten seconds.
    bool wait_for(std::size_t tasks) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return tasks_.size() >= tasks; });
    }
    [[nodiscard]] std::size_t tasks() {
        const std::lock_guard lock(mutex_);
        return tasks_.size();
    }
    // The last first; and holds nothing more.
    void release() {
        std::unique_lock lock(mutex_);
        held_ = false;
        while (!tasks_.empty()) {
            const auto task = std::move(tasks_.back());
            tasks_.pop_back();
            lock.unlock();
            task();
            lock.lock();
        }
    }

    // In their order, and holds nothing more; the first `kept` wait for release().
    void release_all_but(std::size_t kept) {
        std::unique_lock lock(mutex_);
        held_ = false;
        while (tasks_.size() > kept) {
            const auto task = std::move(tasks_[kept]);
            tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(kept));
            lock.unlock();
            task();
            lock.lock();
        }
    }

private:
    void add(std::function<void()> task, std::size_t& count) {
        std::unique_lock lock(mutex_);
        ++count;
        if (!held_) {
            lock.unlock();
            task();
            return;
        }
        tasks_.push_back(std::move(task));
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    bool held_ = false;
    std::size_t ordinary_ = 0;
    std::size_t urgent_ = 0;
    std::vector<std::function<void()>> tasks_;
};

}  // namespace ckptfs::testing
