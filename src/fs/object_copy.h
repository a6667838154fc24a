// SPDX-License-Identifier: Apache-2.0
// Copies an object inside the bucket: by CopyObject, or in parallel parts where it is large. On a store that copies no
// parts CopyObject does it as far as it goes, and then its bytes are fetched and sent: 64 MiB of them at a time in the
// whole process, or one part that is larger.
//
// The source is pinned by its ETag, so that what arrives is one version. A multipart copy carries no metadata by
// itself: it is read from the source and given again. On failure nothing is left behind. Threads: blocks; for the
// blocking executor.
#pragma once

#include <string>

#include "ckptfs/object_store.h"
#include "fs/nodes.h"

namespace ckptfs {

struct CopyOptions {
    // Fails with EEXIST where the destination exists.
    bool no_replace = false;
};

// The version that was copied, and its copy.
struct Copied {
    std::string source_etag;
    ObjectVersion copy;
};

Result<Copied> copy_object(ObjectStore& store, const std::string& source, const std::string& destination,
                           CopyOptions options);

// The same for a source whose description is known (from a listing).
Result<ObjectVersion> copy_object(ObjectStore& store, const ObjectInfo& source, const std::string& destination,
                                  CopyOptions options);

}  // namespace ckptfs
