// SPDX-License-Identifier: Apache-2.0
// Copies an object inside the bucket: by CopyObject, or in parallel parts if it is large. If the store cannot copy
// parts, CopyObject is used up to its size limit; above it bytes are downloaded and uploaded: 64 MiB at a time in the
// whole process, or one part that is larger.
//
// The source is pinned by its ETag, so that one version is copied. A multipart copy carries no metadata by
// itself: it is read from the source and set again. One whose upload another client ends is begun anew. On failure
// nothing is left behind. Threads: blocks; for the blocking executor.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "ckptfs/file_cache.h"
#include "ckptfs/object_store.h"
#include "fs/nodes.h"

namespace ckptfs::fs {

struct CopyOptions {
    // Fails with EEXIST where the destination exists.
    bool no_replace = false;
    // Asked on any thread before each attempt of what makes the copy visible: after a no, it is not made.
    std::function<bool()> may_go_on = nullptr;
    // A copy that gets a `ckptfs-write` of its own is marked there as that of this rename of a directory.
    std::string rename_id = {};
    // The source as this mount last knew it: a small one is copied without a look at it before. The same ETag of the
    // copy, on S3 the MD5 of its bytes, says that it was this version.
    std::optional<ObjectInfo> known = std::nullopt;
    // The source goes once it is copied: to be told, where there is one.
    FileCache* files = nullptr;
};

// Whether an object with this `ckptfs-write` was marked so.
[[nodiscard]] bool is_copy_of_rename(std::string_view write_id, const std::string& rename_id);

// The version that was copied, and its copy.
struct Copied {
    std::string source_etag;
    ObjectVersion copy;
    // The value of the copy's `ckptfs-write`, by which it is told from other copies of the same bytes. Empty where it
    // was given none.
    std::string write_id = {};
    // Of the source, where it was looked at.
    std::string source_write_id = {};
};

// Whether it may be a copy of it that a single request has made: that has the `ckptfs-write` of its source, which every
// save by ckptfs gives anew. What other clients have uploaded has none; then their sizes say so.
[[nodiscard]] bool is_copy_by_request(const ObjectInfo& object, const ObjectInfo& source);

Result<Copied> copy_object(ObjectStore& store, const std::string& source, const std::string& destination,
                           const CopyOptions& options);

// The same for a source whose description is known (from a listing). Where it is large, what is copied may be a newer
// version.
Result<Copied> copy_object(ObjectStore& store, const ObjectInfo& source, const std::string& destination,
                           const CopyOptions& options);

}  // namespace ckptfs::fs
