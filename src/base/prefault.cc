// SPDX-License-Identifier: Apache-2.0
#include "base/prefault.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "base/thread.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// At 400 MiB/s a tenth of a processor, and whatever waits for the process's memory map waits 20 ms at most.
constexpr std::size_t kStep = std::size_t{8} << 20;
constexpr Milliseconds kPause{20};

}  // namespace

Prefault::Prefault(MutableByteSpan memory, Milliseconds delay)
    : thread_(start_thread("ckptfs-prefault", [this, memory, delay] { run(memory, delay); })) {}

Prefault::~Prefault() {
    {
        const MutexLock lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Prefault::run(MutableByteSpan memory, Milliseconds delay) {
    for (Milliseconds pause = delay; !memory.empty() && !stopped_within(pause); pause = kPause) {
        const MutableByteSpan step = memory.first(std::min(kStep, memory.size()));
        if (madvise(step.data(), step.size(), MADV_POPULATE_WRITE) != 0) {
            // Linux before 5.14 does not know it; any other memory is touched when it is used.
            log_debug(format("memory is not touched ahead: {}", std::strerror(errno)));
            return;
        }
        memory = memory.subspan(step.size());
    }
}

bool Prefault::stopped_within(Milliseconds time) {
    MutexLock lock(mutex_);
    return changed_.wait_for(lock, time, [this]() REQUIRES(mutex_) { return stopping_; });
}

}  // namespace ckptfs
