// SPDX-License-Identifier: Apache-2.0
// Threads as this program wants them: named, with signals blocked, so that SIGTERM and SIGHUP always reach the thread
// that waits for them.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace ckptfs {

// Linux keeps the first 15 bytes of the name.
[[nodiscard]] std::thread start_thread(std::string name, std::function<void()> run);

// Runs `work` on so many threads at once, and returns when all of them have; on fewer if the system has no more, and on
// the calling thread if it has none.
void run_on_threads(const std::string& name, int threads, const std::function<void()>& work);

}  // namespace ckptfs
