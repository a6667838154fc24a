// SPDX-License-Identifier: Apache-2.0
// Copies an object inside the bucket: by CopyObject, or in parallel parts if it is large. If the store cannot copy
// parts, CopyObject is used up to its size limit; above it bytes are downloaded and uploaded: 64 MiB at a time in the
// whole process, or one part that is larger.
//
// The source is pinned by its ETag, so that one version is copied. A multipart copy carries no metadata by itself: it
// is read from the source and set again. A copy whose upload another client ends is begun again. On failure nothing is
// left behind. Threads: blocks; for the blocking executor.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "ckptfs/file_cache.h"
#include "ckptfs/object_store.h"
#include "fs/objects/object_version.h"

namespace ckptfs::fs {

// The mark of a copy that may replace nothing: its `ckptfs-write`, and the version that was copied with it. A caller
// that may have to copy again keeps it, so that a copy whose reply was lost is recognised then; not if the source was
// replaced since, of which that copy is none.
struct CopyMark {
    std::string source_etag;
    std::string write_id;
};

struct CopyOptions {
    // Fails with EEXIST where the destination exists.
    bool no_replace = false;
    // Called on any thread before each attempt of the request that makes the copy visible: once it returns false, none
    // is sent.
    std::function<bool()> may_go_on = nullptr;
    // The ID of a directory's rename: a copy that gets a `ckptfs-write` of its own is marked there as made by it.
    std::string rename_id = {};
    // Null: each copy has a mark of its own.
    CopyMark* mark = nullptr;
    // The source as this mount last knew it: a small one is copied without a HEAD before. If the copy has the same
    // ETag, on S3 the MD5 of its bytes, it was this version.
    std::optional<ObjectInfo> known = std::nullopt;
    // What this node keeps of files: notified of the copy, as the source is deleted after it. Null for none.
    FileCache* files = nullptr;
};

// Whether this `ckptfs-write` marks a copy as made by this rename.
[[nodiscard]] bool is_copy_of_rename(std::string_view write_id, const std::string& rename_id);

// The version that was copied, and its copy.
struct Copied {
    std::string source_etag;
    ObjectVersion copy;
    // The value of the copy's `ckptfs-write`, by which it is told from other copies of the same bytes; empty if it was
    // given none of its own.
    std::string write_id = {};
    // `ckptfs-write` of the source, if its description was read.
    std::string source_write_id = {};
    // Every part of it was pinned to the source's version.
    bool in_parts = false;
    // As in PutResponse.
    bool may_come_again = false;
};

// Whether `object` may be a copy of `source` made by a single request: it then has its source's `ckptfs-write`, which
// every save by ckptfs sets anew. Objects uploaded by other clients have none; then their sizes are compared.
[[nodiscard]] bool is_copy_by_request(const ObjectInfo& object, const ObjectInfo& source);

Result<Copied> copy_object(ObjectStore& store, const std::string& source, const std::string& destination,
                           const CopyOptions& options);

// As above, for a source whose description is known (from a listing). If it is large, what is copied may be a newer
// version.
Result<Copied> copy_object(ObjectStore& store, const ObjectInfo& source, const std::string& destination,
                           const CopyOptions& options);

}  // namespace ckptfs::fs
