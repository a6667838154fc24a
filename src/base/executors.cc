// SPDX-License-Identifier: Apache-2.0
#include "base/executors.h"

#include <algorithm>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/text.h"
#include "base/thread.h"
#include "base/thread_pool.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

class DetachedThreads final : public Executor {
public:
    explicit DetachedThreads(std::string name) : name_(std::move(name)) {}
    void post(std::function<void()> task) override {
        try {
            start_thread(name_, std::move(task)).detach();
        } catch (const std::system_error& problem) {
            log_warning(format("no thread {}: {}", name_, problem.what()));
        }
    }

private:
    const std::string name_;
};

}  // namespace

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
