// SPDX-License-Identifier: Apache-2.0
// Executor with threads of its own, first come, first served, but urgent tasks before others, three for one where both
// wait.
//
// The queue has no limit of its own: each task stands for a request or a buffer that is already counted elsewhere.
// Threads: as Executor says. A task may post more tasks, also while the pool is being stopped.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

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
    void post_to(Tasks& tasks, std::function<void()> task);
    void run();
    // With mutex_ held.
    [[nodiscard]] std::function<void()> take_next();

    // Mutable, guarded by mutex_.
    std::mutex mutex_;
    std::condition_variable posted_;
    Tasks tasks_;
    Tasks urgent_;
    // Taken since one of the others was, or none of them waited.
    int urgent_in_a_row_ = 0;
    bool stopping_ = false;
    bool stopped_ = false;

    // Last, so that everything above exists before they run.
    std::vector<std::thread> threads_;
};

}  // namespace ckptfs
