// SPDX-License-Identifier: Apache-2.0
// Whether the bucket is there and this mount may use it, asked before mounting.
//
// Reading is tried with a list of one key below the prefix, and a look at that object, which only warns. Writing is
// tried by beginning and ending a multipart upload below .ckptfs/tmp/, which leaves nothing behind. Threads: blocks the
// caller.
#pragma once

#include <string>

#include "ckptfs/config.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs {

// `name`: a unique name for the trial upload. The error is one line that says what failed and what to do.
Status check_bucket(ObjectStore& store, const std::string& prefix, bool read_only, const std::string& name);

}  // namespace ckptfs
