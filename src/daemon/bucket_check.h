// SPDX-License-Identifier: Apache-2.0
// Checks before mounting that the bucket exists and that this mount may use it.
//
// Reading is tried with a list of one key below the prefix and a HEAD of that object, whose refusal is only logged as a
// warning. Writing is tried by creating and aborting a multipart upload below .ckptfs/tmp/, which leaves nothing
// behind. Threads: blocks the caller.
#pragma once

#include <string>

#include "ckptfs/config.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs {

// `name`: a unique name for the trial upload. The error is one line that says what failed and what to do.
Status check_bucket(ObjectStore& store, const std::string& prefix, bool read_only, const std::string& name);

}  // namespace ckptfs
