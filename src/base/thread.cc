// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

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
    // Also where the system has no more threads, which std::thread throws.
    const std::unique_ptr<const sigset_t, void (*)(const sigset_t*)> restored(
        &before, [](const sigset_t* mask) { pthread_sigmask(SIG_SETMASK, mask, nullptr); });
    return std::thread([name = std::move(name), run = std::move(run)] {
        pthread_setname_np(pthread_self(), name.c_str());
        run();
    });
}

}  // namespace ckptfs
