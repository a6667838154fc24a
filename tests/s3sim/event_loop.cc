// SPDX-License-Identifier: Apache-2.0
#include "event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace ckptfs::s3sim {
namespace {

constexpr EventLoop::HandlerId kTimerId = 1;
constexpr EventLoop::HandlerId kTaskId = 2;

// Timers this close are run together: hundreds of paced connections would otherwise wake the thread one by one.
constexpr Duration kTimerSlack = std::chrono::microseconds(300);

int checked(int result, const char* what) {
    if (result < 0) {
        throw std::system_error(errno, std::generic_category(), what);
    }
    return result;
}

void watch_descriptor(int epoll_fd, int fd, std::uint32_t events, EventLoop::HandlerId id) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    checked(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

}  // namespace

EventLoop::EventLoop()
    : epoll_fd_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      timer_fd_(checked(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), "timerfd_create")),
      task_fd_(checked(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd")) {
    // Edge-triggered, so that neither has to be read to be quiet again.
    watch_descriptor(epoll_fd_, timer_fd_, EPOLLIN | EPOLLET, kTimerId);
    watch_descriptor(epoll_fd_, task_fd_, EPOLLIN | EPOLLET, kTaskId);
}

EventLoop::~EventLoop() {
    close(task_fd_);
    close(timer_fd_);
    close(epoll_fd_);
}

EventLoop::HandlerId EventLoop::add(Handler& handler) {
    const HandlerId id = next_id_++;
    handlers_[id] = &handler;
    return id;
}

void EventLoop::watch(HandlerId id, int fd, std::uint32_t events) {
    watch_descriptor(epoll_fd_, fd, events, id);
}

void EventLoop::remove(HandlerId id) {
    handlers_.erase(id);
}

void EventLoop::wake_at(HandlerId id, TimePoint at) {
    timers_.push(Timer{at, id});
}

void EventLoop::wake_soon(HandlerId id) {
    yielded_.push_back(id);
}

void EventLoop::post(std::function<void()> task) {
    {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
    }
    const std::uint64_t one = 1;
    // Can fail only when the counter is full, and then the loop is awake already.
    [[maybe_unused]] const ssize_t written = write(task_fd_, &one, sizeof(one));
}

void EventLoop::stop() {
    post([this] { stopping_ = true; });
}

void EventLoop::run() {
    while (!stopping_) {
        arm_timer();
        wait_for_events(yielded_.empty() ? -1 : 0);
        run_timers();
        run_yielded();
    }
}

void EventLoop::arm_timer() {
    const TimePoint earliest = timers_.empty() ? TimePoint::max() : timers_.top().at;
    if (earliest == armed_at_) {
        return;
    }
    armed_at_ = earliest;
    itimerspec setting{};
    if (earliest != TimePoint::max()) {
        // steady_clock is CLOCK_MONOTONIC; a time of zero would disarm.
        const auto since_boot = std::max<std::int64_t>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(earliest.time_since_epoch()).count(), 1);
        setting.it_value.tv_sec = since_boot / 1'000'000'000;
        setting.it_value.tv_nsec = since_boot % 1'000'000'000;
    }
    checked(timerfd_settime(timer_fd_, TFD_TIMER_ABSTIME, &setting, nullptr), "timerfd_settime");
}

void EventLoop::wait_for_events(int timeout_ms) {
    std::array<epoll_event, 128> events{};
    const int count = epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), timeout_ms);
    now_ = Clock::now();
    for (int i = 0; i < count; ++i) {
        // Copies: the kernel's structure is packed, and a reference into it would be misaligned.
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        const HandlerId id = event.data.u64;
        const std::uint32_t ready = event.events;
        if (id == kTimerId) {
            armed_at_ = TimePoint::max();
        } else if (id == kTaskId) {
            run_tasks();
        } else if (const auto found = handlers_.find(id); found != handlers_.end()) {
            found->second->on_ready(ready);
        }
    }
}

void EventLoop::run_timers() {
    now_ = Clock::now();
    while (!timers_.empty() && timers_.top().at <= now_ + kTimerSlack) {
        const HandlerId id = timers_.top().id;
        timers_.pop();
        wake(id);
    }
}

void EventLoop::run_tasks() {
    std::vector<std::function<void()>> tasks;
    {
        const std::lock_guard lock(mutex_);
        tasks.swap(tasks_);
    }
    for (const auto& task : tasks) {
        task();
    }
}

void EventLoop::run_yielded() {
    std::vector<HandlerId> ids;
    ids.swap(yielded_);
    for (const HandlerId id : ids) {
        wake(id);
    }
}

void EventLoop::wake(HandlerId id) {
    if (const auto found = handlers_.find(id); found != handlers_.end()) {
        found->second->on_wake();
    }
}

}  // namespace ckptfs::s3sim
