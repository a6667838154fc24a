// SPDX-License-Identifier: Apache-2.0
// Threads for a disk that may hang: no caller waits for it longer than it wants to.
//
// Ownership: tasks that hang outlive the object. They keep what they hold, and must not use what ends with its owner
// (stop() says whether there are any). `timer` outlives the object.
// Threads: all functions may be called from any thread; only stop() waits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/mutex.h"
#include "ckptfs/clock.h"

namespace ckptfs {

class DiskThreads {
public:
    using Deliver = std::function<void()>;

    DiskThreads(int threads, Timer& timer);
    ~DiskThreads();
    DiskThreads(const DiskThreads&) = delete;
    DiskThreads& operator=(const DiskThreads&) = delete;

    // Runs tasks in the order of the calls. After stop() the task runs in this call; if the disk hangs, it never runs,
    // and is kept with what it holds until the disk comes back.
    void post(std::function<void()> task);
    // The function that `work` returns is called after it, on the same thread, if `work` returns in time; otherwise
    // `late` is, on any thread. One of the two is called, once. After stop() `work` runs in this call; if the disk
    // hangs, it is late.
    void within(Milliseconds limit, std::function<Deliver()> work, std::function<void()> late);
    // Whether a task was late and has not come back.
    [[nodiscard]] bool hangs() const;
    // Runs what was posted. False if no task comes back for as long as `patience`.
    [[nodiscard]] bool stop(Milliseconds patience);

private:
    class State;
    const std::shared_ptr<State> state_;
    Timer& timer_;
};

}  // namespace ckptfs
