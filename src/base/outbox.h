// SPDX-License-Identifier: Apache-2.0
// Calls to the outside that a locked section has decided on, made after the lock is released, in the order in which
// they were decided, by one thread at a time.
//
// A call may call its owner again (a store that replies at once): the calls that this adds are made by the thread that
// is already delivering, so that stacks stay flat.
//
// Threads: guarded by its owner's mutex. The owner must stay alive until deliver() returns.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace ckptfs {

class Outbox {
public:
    using Call = std::function<void()>;

    // To be called with the owner's mutex held.
    void add(Call call) { calls_.push_back(std::move(call)); }

    // Takes the owner's held mutex and leaves it released.
    void deliver(MutexLock& lock) RELEASE(lock) {
        if (delivering_) {
            lock.unlock();
            return;
        }
        delivering_ = true;
        while (!calls_.empty()) {
            std::vector<Call> calls = std::exchange(calls_, {});
            lock.unlock();
            for (Call& call : calls) {
                call();
                call = nullptr;
            }
            lock.lock();
        }
        delivering_ = false;
        lock.unlock();
    }

private:
    std::vector<Call> calls_;
    bool delivering_ = false;
};

}  // namespace ckptfs
