// SPDX-License-Identifier: Apache-2.0
// The place where the first writer of an environment leaves what all its writers share.
// Threads: get() may be called from any thread.
#pragma once

#include <memory>

#include "base/mutex.h"

namespace ckptfs {

struct WriteEnvironment;
class WriterGroup;

class LazyWriterGroup {
public:
    [[nodiscard]] std::shared_ptr<WriterGroup> get(WriteEnvironment& environment);

private:
    Mutex mutex_;
    std::shared_ptr<WriterGroup> group_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
