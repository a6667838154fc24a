// SPDX-License-Identifier: Apache-2.0
#pragma once

// One thread's epoll loop with timers. All members but post() and stop() belong to the thread that calls run().
// Handlers are named by id, so that an event for one that is gone falls on nothing.

#include <cstdint>
#include <functional>
#include <mutex>
#include <queue>
#include <unordered_map>
#include <vector>

#include "pacer.h"

namespace ckptfs::s3sim {

class EventLoop {
public:
    class Handler {
    public:
        virtual ~Handler() = default;
        virtual void on_ready(std::uint32_t events) = 0;
        virtual void on_wake() = 0;
    };
    using HandlerId = std::uint64_t;

    EventLoop();
    ~EventLoop();
    EventLoop(const EventLoop&) = delete;
    EventLoop& operator=(const EventLoop&) = delete;

    // The handler must stay alive until remove(id).
    HandlerId add(Handler& handler);
    // `events` as for epoll_ctl; watching ends when the descriptor is closed.
    void watch(HandlerId id, int fd, std::uint32_t events);
    void remove(HandlerId id);

    // on_wake is called once at about `at`; several calls give several wakes.
    void wake_at(HandlerId id, TimePoint at);
    // on_wake is called after the events now at hand: a long transfer gives way to others.
    void wake_soon(HandlerId id);

    // From any thread: runs `task` on the loop's thread.
    void post(std::function<void()> task);
    void run();
    void stop();

    TimePoint now() const { return now_; }  // as of the current round

private:
    struct Timer {
        TimePoint at;
        HandlerId id;
        bool operator>(const Timer& other) const { return at > other.at; }
    };

    void arm_timer();
    void wait_for_events(int timeout_ms);
    void run_timers();
    void run_tasks();
    void run_yielded();
    void wake(HandlerId id);

    int epoll_fd_;
    int timer_fd_;
    int task_fd_;
    TimePoint now_ = Clock::now();
    TimePoint armed_at_ = TimePoint::max();
    HandlerId next_id_ = 16;  // smaller ones name the loop's own descriptors
    std::unordered_map<HandlerId, Handler*> handlers_;
    std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
    std::vector<HandlerId> yielded_;
    bool stopping_ = false;

    std::mutex mutex_;
    std::vector<std::function<void()>> tasks_;  // guarded by mutex_
};

}  // namespace ckptfs::s3sim
