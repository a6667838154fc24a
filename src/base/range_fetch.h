// SPDX-License-Identifier: Apache-2.0
// A small range of an object, in memory of its own: tables and sizes at its end, not file data.
#pragma once

#include <functional>
#include <string>

#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs {

struct FetchedRange {
    ObjectInfo object;
    Payload bytes;
};

// `range` says how much at most; a suffix longer than the object gives all of it. EIO where the store sends something
// else. `done` is called exactly once, on any thread.
void fetch_range(ObjectStore& store, std::string key, std::string etag, ByteRange range,
                 std::function<void(Result<FetchedRange>)> done);

}  // namespace ckptfs
