// SPDX-License-Identifier: Apache-2.0
// `ckptfs cat`: the bytes of the file that an object holds, in order, while more are fetched and decoded ahead.
#pragma once

#include <functional>
#include <string>

#include "ckptfs/bytes.h"
#include "ckptfs/codec.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs {

// `write` is never called concurrently. What comes before an error has been written, but nothing of a damaged frame.
// Takes 15 MiB of memory at most for each of kToolThreads.
Status cat_object(ObjectStore& store, const Codec& codec, const std::string& key,
                  const std::function<Status(ByteSpan)>& write);

}  // namespace ckptfs
