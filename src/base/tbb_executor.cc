// SPDX-License-Identifier: Apache-2.0
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>

#include "base/executors.h"

namespace ckptfs {
namespace {

class TbbExecutor final : public Executor {
public:
    // oneTBB counts the thread that waits in an arena as one of its workers; nobody waits in ours, so it is asked for
    // one more.
    explicit TbbExecutor(int threads)
        : parallelism_(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads) + 1),
          arena_(threads, 0) {
        arena_.initialize();
    }
    ~TbbExecutor() override {
        std::unique_lock lock(mutex_);
        finished_.wait(lock, [this] { return unfinished_ == 0; });
    }
    TbbExecutor(const TbbExecutor&) = delete;
    TbbExecutor& operator=(const TbbExecutor&) = delete;

    void post(std::function<void()> task) override {
        {
            const std::lock_guard lock(mutex_);
            // The task, and this call: the task may end the executor's owner while we are still in here.
            unfinished_ += 2;
        }
        // oneTBB calls its functor as const; ours has to let go of the task before it counts it as finished.
        arena_.enqueue([this, run = std::make_shared<std::function<void()>>(std::move(task))] {
            (*run)();
            *run = nullptr;
            finish();
        });
        finish();
    }

private:
    void finish() {
        const std::lock_guard lock(mutex_);
        if (--unfinished_ == 0) {
            // Under the lock: the destructor may not return while we still touch the condition.
            finished_.notify_all();
        }
    }

    tbb::global_control parallelism_;
    tbb::task_arena arena_;

    // Mutable, guarded by mutex_.
    std::mutex mutex_;
    std::condition_variable finished_;
    std::size_t unfinished_ = 0;
};

}  // namespace

std::unique_ptr<Executor> make_executor() {
    return std::make_unique<TbbExecutor>(processor_count());
}

}  // namespace ckptfs
