// SPDX-License-Identifier: Apache-2.0
// What an object holds, where its own size does not tell: how long the file in it is, or that it is a symbolic link.
//
// Nearly all objects show by their size that they are plain files (has_marked_size). Of the others the end is fetched,
// once for each version. If the object's description does not tell the size as well, it is fetched until two answers
// agree, because no checksum covers the end, and a file that is changed at a size that arrived damaged would lose its
// end. A damaged file is shown with the size of its object, so that it can still be listed and removed; opening it says
// what is wrong.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/range_fetch.h"
#include "ckptfs/codec.h"
#include "ckptfs/file_cache.h"
#include "ckptfs/object_store.h"
#include "fs/file_operations.h"

namespace ckptfs::fs {

struct ObjectContent {
    FileType type = FileType::kFile;
    // Size in bytes, as stat(2) shows it.
    std::uint64_t size = 0;

    friend bool operator==(const ObjectContent&, const ObjectContent&) = default;
};

// The content of an object that is described with its metadata: a symbolic link if that says so, else a file of this
// size.
[[nodiscard]] ObjectContent content_of(const ObjectInfo& object, std::uint64_t file_size);

class ObjectContents {
public:
    using Found = std::function<void(Result<ObjectContent>)>;

    // `files`: the files that this node keeps, whose sizes it may know; null for none.
    ObjectContents(ObjectStore& store, const Codec& codec, FileCache* files)
        : store_(store), codec_(codec), files_(files) {}

    // The content if it is known without a request; else empty.
    [[nodiscard]] std::optional<ObjectContent> known(const ObjectInfo& object) const;
    // `object`: as a listing describes it. ENOENT or ESTALE if this version is gone.
    void find(const ObjectInfo& object, Found done);
    // As above, for an object as HeadObject describes it, which may tell the content already.
    void find_described(const ObjectInfo& object, Found done);
    void remember(const std::string& key, const std::string& etag, ObjectContent content);

private:
    // What one fetch of the end showed; empty if it was damaged.
    using Reading = std::optional<ObjectContent>;
    using Readings = std::vector<Reading>;

    void fetch_tail(const ObjectInfo& object, Readings before, Found done);
    void tail_here(const ObjectInfo& object, Readings readings, const FetchedRange& tail, const Found& done);
    // The content as the fetched end tells it.
    [[nodiscard]] Result<ObjectContent> read_tail(const FetchedRange& tail) const;

    ObjectStore& store_;
    const Codec& codec_;
    FileCache* const files_;

    mutable Mutex mutex_;
    // Contents by the hash of key and ETag.
    std::unordered_map<std::uint64_t, ObjectContent> contents_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
