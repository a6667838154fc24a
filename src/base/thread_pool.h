// SPDX-License-Identifier: Apache-2.0
// Executor with threads of its own, first come, first served, but urgent tasks before others, three for one where both
// wait.
//
// The queue has no limit of its own: each task stands for a request or a buffer that is already counted elsewhere.
// Threads: as Executor says. A task may post more tasks, also while the pool is being stopped.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/executor.h"

namespace ckptfs {

class ThreadPool final : public Executor {
public:
    ThreadPool(const std::string& name, int threads);
    ~ThreadPool() override;
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    void post(std::function<void()> task) override;
    void post_urgent(std::function<void()> task) override;
    void stop() override;

private:
    using Tasks = std::deque<std::function<void()>>;
    void post_one(bool is_urgent, std::function<void()> task) EXCLUDES(mutex_);
    void run();
    [[nodiscard]] std::function<void()> take_next() REQUIRES(mutex_);

    // Mutable.
    Mutex mutex_;
    Condition posted_;
    Tasks tasks_ GUARDED_BY(mutex_);
    Tasks urgent_ GUARDED_BY(mutex_);
    // Taken since one of the others was, or none of them waited.
    int urgent_in_a_row_ GUARDED_BY(mutex_) = 0;
    bool stopping_ GUARDED_BY(mutex_) = false;
    bool stopped_ GUARDED_BY(mutex_) = false;

    // Last, so that everything above exists before they run.
    std::vector<std::thread> threads_;
};

}  // namespace ckptfs
