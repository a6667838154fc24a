// SPDX-License-Identifier: Apache-2.0
#include "base/executors.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "base/thread.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

constexpr int kUrgentInARow = 3;

class DetachedThreads final : public Executor {
public:
    explicit DetachedThreads(std::string name) : name_(std::move(name)) {}
    void post(std::function<void()> task) override {
        try {
            start_thread(name_, std::move(task)).detach();
        } catch (const std::system_error& problem) {
            log_warning(format("cannot start thread {}: {}", name_, problem.what()));
        }
    }

private:
    const std::string name_;
};

}  // namespace

ThreadPool::ThreadPool(const std::string& name, int threads) {
    for (int index = 0; index < std::max(threads, 1); ++index) {
        threads_.push_back(start_thread(name, [this] { run(); }));
    }
}

ThreadPool::~ThreadPool() {
    ThreadPool::stop();
}

void ThreadPool::stop() {
    {
        const MutexLock lock(mutex_);
        stopping_ = true;
    }
    posted_.notify_all();
    for (std::thread& thread : threads_) {
        thread.join();
    }
    threads_.clear();
    // Runs what other threads posted after the last of ours had looked.
    run();
}

void ThreadPool::post(std::function<void()> task) {
    post_one(false, std::move(task));
}

void ThreadPool::post_urgent(std::function<void()> task) {
    post_one(true, std::move(task));
}

void ThreadPool::post_one(bool is_urgent, std::function<void()> task) {
    {
        // Notified under the lock: once it is free, the task may end the pool.
        const MutexLock lock(mutex_);
        if (!stopped_) {
            (is_urgent ? urgent_ : tasks_).push_back(std::move(task));
            posted_.notify_one();
            return;
        }
    }
    task();
}

std::function<void()> ThreadPool::take_next() {
    const bool takes_urgent = tasks_.empty() || (!urgent_.empty() && urgent_in_a_row_ < kUrgentInARow);
    urgent_in_a_row_ = takes_urgent && !tasks_.empty() ? urgent_in_a_row_ + 1 : 0;
    Tasks& from = takes_urgent ? urgent_ : tasks_;
    std::function<void()> task = std::move(from.front());
    from.pop_front();
    return task;
}

void ThreadPool::run() {
    MutexLock lock(mutex_);
    while (true) {
        posted_.wait(lock, [this]() REQUIRES(mutex_) { return stopping_ || !tasks_.empty() || !urgent_.empty(); });
        if (tasks_.empty() && urgent_.empty()) {
            stopped_ = threads_.empty();
            return;
        }
        std::function<void()> task = take_next();
        lock.unlock();
        task();
        // Its captures may be the last owners of something that posts or waits.
        task = nullptr;
        lock.lock();
    }
}

std::unique_ptr<Executor> make_executor() {
    return std::make_unique<ThreadPool>("ckptfs-compute", processor_count());
}

std::unique_ptr<Executor> make_blocking_executor(int threads) {
    return std::make_unique<ThreadPool>("ckptfs-blocking", threads);
}

std::unique_ptr<Executor> make_detached_executor(std::string thread_name) {
    return std::make_unique<DetachedThreads>(std::move(thread_name));
}

int processor_count() {
    // libstdc++ asks sched_getaffinity, so that a taskset or a cpuset counts.
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace ckptfs
