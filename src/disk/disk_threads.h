// SPDX-License-Identifier: Apache-2.0
// Threads for a disk that may hang: none of their callers waits for it longer than it wants to.
//
// Ownership: tasks that hang outlive the object: they keep what they hold, and must not use what ends with its owner
// (stop() says whether there are any). `timer` outlives it.
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

    // In the order in which they come. After stop() it runs here, or never, where the disk hangs: then it is kept, with
    // what it holds, until the disk comes back.
    void post(std::function<void()> task);
    // What `work` returns is called behind it, on its thread, if it comes in time; else `late` is, on any thread. One
    // of the two is called, once. After stop() it runs here, or is late where the disk hangs.
    void within(Milliseconds limit, std::function<Deliver()> work, std::function<void()> late);
    // A task was late, and has not come back.
    [[nodiscard]] bool hangs() const;
    // Runs what was posted, unless none of it comes back for as long as `patience`: false then.
    [[nodiscard]] bool stop(Milliseconds patience);

private:
    class State;
    const std::shared_ptr<State> state_;
    Timer& timer_;
};

}  // namespace ckptfs
