// SPDX-License-Identifier: Apache-2.0
// An executor that does everything at once, on the thread that asks for it.
#pragma once

#include <functional>

#include "ckptfs/executor.h"

namespace ckptfs::testing {

class InlineExecutor : public Executor {
public:
    void post(std::function<void()> task) override { task(); }
};

}  // namespace ckptfs::testing
