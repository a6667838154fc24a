// SPDX-License-Identifier: Apache-2.0
#include "base/timer_thread.h"

#include "base/thread.h"

namespace ckptfs {

TimerThread::TimerThread(const Clock& clock)
    : clock_(clock), thread_(start_thread("ckptfs-timer", [this] { run(); })) {}

TimerThread::~TimerThread() {
    {
        const MutexLock lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

Timer::Id TimerThread::after(Milliseconds delay, std::function<void()> run) {
    const SteadyTime due = clock_.now() + delay;
    const MutexLock lock(mutex_);
    const Id id = ++last_id_;
    const auto added = pending_.emplace(Due(due, id), std::move(run)).first;
    due_.emplace(id, due);
    if (added == pending_.begin()) {
        // Under the lock: once it is free, the function may end the timer's owner.
        changed_.notify_all();
    }
    return id;
}

void TimerThread::cancel(Id id) {
    // Destroyed without the lock: its captures may call back.
    std::function<void()> dropped;
    MutexLock lock(mutex_);
    const auto found = due_.find(id);
    if (found != due_.end()) {
        const auto entry = pending_.find(Due(found->second, id));
        dropped = std::move(entry->second);
        pending_.erase(entry);
        due_.erase(found);
    } else if (std::this_thread::get_id() != timer_thread_) {
        finished_.wait(lock, [&]() REQUIRES(mutex_) { return running_ != id; });
    }
    lock.unlock();
}

void TimerThread::run() {
    MutexLock lock(mutex_);
    timer_thread_ = std::this_thread::get_id();
    while (!stopping_) {
        if (pending_.empty()) {
            changed_.wait(lock);
            continue;
        }
        const auto next = pending_.begin();
        const auto [due, id] = next->first;
        const SteadyTime now = clock_.now();
        if (now < due) {
            changed_.wait_for(lock, due - now);
            continue;
        }
        std::function<void()> task = std::move(next->second);
        pending_.erase(next);
        due_.erase(id);
        running_ = id;
        lock.unlock();
        task();
        task = nullptr;
        lock.lock();
        running_ = 0;
        finished_.notify_all();
    }
}

}  // namespace ckptfs
