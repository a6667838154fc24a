// SPDX-License-Identifier: Apache-2.0
// The executors of a mount.
//
// Make them after the process has gone to the background: threads do not survive fork().
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/executor.h"

namespace ckptfs {

// A pool of threads: first come, first served, but urgent tasks go first, three for each other one while both wait.
//
// The queue has no limit of its own: each task stands for a request or a buffer that is already counted elsewhere.
// Threads: as Executor says. A task may post more tasks, also while the pool is being stopped.
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
    // Urgent tasks taken in a row while tasks of post() waited.
    int urgent_in_a_row_ GUARDED_BY(mutex_) = 0;
    bool stopping_ GUARDED_BY(mutex_) = false;
    bool stopped_ GUARDED_BY(mutex_) = false;

    // Last, so that everything above exists before they run.
    std::vector<std::thread> threads_;
};

// For computation: one thread per processor. A plain queue: oneTBB, whose workers look for work for a while before they
// sleep, took 0.1 to 0.2 s of CPU per GB more for tasks as large and as few as these.
[[nodiscard]] std::unique_ptr<Executor> make_executor();

// For tasks that wait: namespace operations and staging files.
[[nodiscard]] std::unique_ptr<Executor> make_blocking_executor(int threads);

// A detached thread for each task: for tasks that may hang for good. A task whose thread cannot be started is logged
// and dropped.
[[nodiscard]] std::unique_ptr<Executor> make_detached_executor(std::string thread_name);

// Processors this process may run on, at least 1.
[[nodiscard]] int processor_count();

}  // namespace ckptfs
