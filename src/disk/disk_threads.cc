// SPDX-License-Identifier: Apache-2.0
#include "disk/disk_threads.h"

#include <atomic>
#include <deque>
#include <map>
#include <utility>

#include "base/thread.h"

namespace ckptfs {

// Shared with the threads, which may hang for longer than their owner lives.
class DiskThreads::State {
public:
    void run() EXCLUDES(mutex_);
    // False if the disk hangs, after stop().
    [[nodiscard]] bool post(std::function<void()> task) EXCLUDES(mutex_);
    [[nodiscard]] bool stop(Milliseconds patience) EXCLUDES(mutex_);
    void thread_begins() {
        const MutexLock lock(mutex_);
        ++threads_;
    }
    // Takes what gives up a task, until answered() is called with the number that is returned.
    std::uint64_t awaits(std::function<void()> give_up) EXCLUDES(mutex_);
    void answered(std::uint64_t number) EXCLUDES(mutex_);

    // Tasks that were late and have not come back. Below 0 for a moment if one comes back as it is given up.
    std::atomic<int> hanging{0};

private:
    Mutex mutex_;
    Condition posted_;
    // Notified while the threads are being stopped.
    Condition came_back_;
    std::deque<std::function<void()>> tasks_ GUARDED_BY(mutex_);
    // Tasks that do not run any more. To free what they hold may need the disk: the thread that hangs keeps them.
    std::deque<std::function<void()>> abandoned_ GUARDED_BY(mutex_);
    std::map<std::uint64_t, std::function<void()>> unanswered_ GUARDED_BY(mutex_);
    std::uint64_t last_number_ GUARDED_BY(mutex_) = 0;
    int threads_ GUARDED_BY(mutex_) = 0;
    std::uint64_t ended_ GUARDED_BY(mutex_) = 0;
    bool is_stopping_ GUARDED_BY(mutex_) = false;
    bool is_given_up_ GUARDED_BY(mutex_) = false;
};

void DiskThreads::State::run() {
    MutexLock lock(mutex_);
    for (;;) {
        posted_.wait(lock, [this]() REQUIRES(mutex_) { return is_stopping_ || !tasks_.empty(); });
        if (tasks_.empty()) {
            break;
        }
        std::function<void()> task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        task();
        // Its captures may be the last owners of something that posts.
        task = nullptr;
        lock.lock();
        ++ended_;
        if (is_stopping_) {
            came_back_.notify_all();
        }
    }
    --threads_;
    came_back_.notify_all();
    // The abandoned tasks hold this state, and freeing them needs a disk that responds: the last thread to come back
    // has one.
    const std::deque<std::function<void()>> abandoned =
        threads_ == 0 ? std::exchange(abandoned_, {}) : decltype(abandoned_)();
    lock.unlock();
}

bool DiskThreads::State::post(std::function<void()> task) {
    {
        const MutexLock lock(mutex_);
        if (is_given_up_) {
            if (threads_ > 0) {
                abandoned_.push_back(std::move(task));
            }
            return false;
        }
        if (!is_stopping_) {
            tasks_.push_back(std::move(task));
            posted_.notify_one();
            return true;
        }
    }
    task();
    return true;
}

bool DiskThreads::State::stop(Milliseconds patience) {
    std::map<std::uint64_t, std::function<void()>> unanswered;
    MutexLock lock(mutex_);
    if (is_given_up_) {
        // Only once: abandoned tasks stay so.
        return threads_ == 0;
    }
    is_stopping_ = true;
    posted_.notify_all();
    while (threads_ > 0) {
        const std::uint64_t before = ended_;
        const auto goes_on = [&]() REQUIRES(mutex_) { return threads_ == 0 || ended_ != before; };
        if (!came_back_.wait_for(lock, patience, goes_on)) {
            is_given_up_ = true;
            // Threads that come back find nothing more to do.
            abandoned_.swap(tasks_);
            unanswered.swap(unanswered_);
            lock.unlock();
            // Called while what they use still exists.
            for (const auto& [number, give_up] : unanswered) {
                give_up();
            }
            return false;
        }
    }
    return true;
}

std::uint64_t DiskThreads::State::awaits(std::function<void()> give_up) {
    const MutexLock lock(mutex_);
    unanswered_.emplace(++last_number_, std::move(give_up));
    return last_number_;
}

void DiskThreads::State::answered(std::uint64_t number) {
    std::function<void()> give_up;
    const MutexLock lock(mutex_);
    if (const auto found = unanswered_.find(number); found != unanswered_.end()) {
        give_up.swap(found->second);
        unanswered_.erase(found);
    }
}

DiskThreads::DiskThreads(int threads, Timer& timer) : state_(std::make_shared<State>()), timer_(timer) {
    for (int index = 0; index < threads; ++index) {
        state_->thread_begins();
        start_thread("ckptfs-disk", [state = state_] { state->run(); }).detach();
    }
}

DiskThreads::~DiskThreads() {
    static_cast<void>(state_->stop(Milliseconds(0)));
}

void DiskThreads::post(std::function<void()> task) {
    static_cast<void>(state_->post(std::move(task)));
}

void DiskThreads::within(Milliseconds limit, std::function<Deliver()> work, std::function<void()> late) {
    const auto is_answered = std::make_shared<std::atomic<bool>>(false);
    const auto give_up = [&hanging = state_->hanging, keeps = state_, is_answered, late = std::move(late)] {
        if (!is_answered->exchange(true)) {
            ++hanging;
            late();
        }
    };
    const std::uint64_t number = state_->awaits(give_up);
    const Timer::Id timeout = timer_.after(limit, give_up);
    const bool is_posted =
        state_->post([state = state_, &timer = timer_, timeout, number, is_answered, work = std::move(work)] {
            // Does not begin if it has waited for too long.
            const Deliver deliver = is_answered->load() ? nullptr : work();
            if (is_answered->exchange(true)) {
                --state->hanging;
            } else {
                timer.cancel(timeout);
                deliver();
            }
            state->answered(number);
        });
    if (!is_posted) {
        timer_.cancel(timeout);
        state_->answered(number);
        give_up();
    }
}

bool DiskThreads::hangs() const {
    return state_->hanging.load() > 0;
}

bool DiskThreads::stop(Milliseconds patience) {
    return state_->stop(patience);
}

}  // namespace ckptfs
