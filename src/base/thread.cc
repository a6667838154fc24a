// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// TASK_COMM_LEN of Linux, without the closing zero.
constexpr std::size_t kMaxThreadName = 15;

}  // namespace

std::thread start_thread(std::string name, std::function<void()> run) {
    name.resize(std::min(name.size(), kMaxThreadName));
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    // A new thread inherits the mask, so that no signal can slip in before it blocks them itself.
    pthread_sigmask(SIG_SETMASK, &all, &before);
    // Also if the system has no more threads, in which case std::thread throws.
    const std::unique_ptr<const sigset_t, void (*)(const sigset_t*)> restored(
        &before, [](const sigset_t* mask) { pthread_sigmask(SIG_SETMASK, mask, nullptr); });
    return std::thread([name = std::move(name), run = std::move(run)] {
        pthread_setname_np(pthread_self(), name.c_str());
        run();
    });
}

void run_on_threads(const std::string& name, int threads, const std::function<void()>& work) {
    std::vector<std::thread> started;
    started.reserve(static_cast<std::size_t>(threads));
    try {
        for (int i = 0; i < threads; ++i) {
            started.push_back(start_thread(name, work));
        }
    } catch (const std::system_error& error) {
        log_debug(format("{} of {} threads {}: {}", started.size(), threads, name, error.what()));
    }
    if (started.empty()) {
        work();
    }
    for (std::thread& thread : started) {
        thread.join();
    }
}

}  // namespace ckptfs
