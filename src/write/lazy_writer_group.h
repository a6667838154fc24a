// SPDX-License-Identifier: Apache-2.0
// Holds what all writers of an environment share; the first of them makes it.
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
