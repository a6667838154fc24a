// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstddef>
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
    std::thread thread([name = std::move(name), run = std::move(run)] {
        pthread_setname_np(pthread_self(), name.c_str());
        run();
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
}

}  // namespace ckptfs
