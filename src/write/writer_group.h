// SPDX-License-Identifier: Apache-2.0
// What the writers of one mount share: the plan of their parts.
//
// Ownership: made by the first writer of an environment, kept by every writer.
// Threads: all functions may be called from any thread.
#pragma once

#include "ckptfs/buffer_pool.h"
#include "ckptfs/config.h"
#include "write/part_plan.h"

namespace ckptfs {

class WriterGroup {
public:
    WriterGroup(BufferPool& pool, const WriteConfig& config);

    [[nodiscard]] const PartPlan& plan() const { return plan_; }

private:
    const PartPlan plan_;
};

}  // namespace ckptfs
