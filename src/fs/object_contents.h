// SPDX-License-Identifier: Apache-2.0
// What an object holds, where its own size does not tell: how long the file in it is, or that it is a symbolic link.
//
// Nearly all objects show by their size that they are plain files (has_marked_size). Of the rest the end is asked
// for, once for each version; until two answers agree where no description tells the size as well, because no checksum
// covers the end, and a file that is changed at a size that came damaged would lose its end. The size of a damaged one
// is that of the object, so that it can still be listed and removed; opening it says what is wrong.
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
    // As stat shows it.
    std::uint64_t size = 0;

    friend bool operator==(const ObjectContent&, const ObjectContent&) = default;
};

// Of a file of this size in an object that is described with its metadata; else the symbolic link that it is.
[[nodiscard]] ObjectContent content_of(const ObjectInfo& object, std::uint64_t file_size);

class ObjectContents {
public:
    using Found = std::function<void(Result<ObjectContent>)>;

    // `files`: what this node keeps, if anything, and may know the sizes of.
    ObjectContents(ObjectStore& store, const Codec& codec, FileCache* files)
        : store_(store), codec_(codec), files_(files) {}

    // Without a request; empty where one is needed.
    [[nodiscard]] std::optional<ObjectContent> known(const ObjectInfo& object) const;
    // `object` as a list described it. ENOENT or ESTALE where this version is gone.
    void find(const ObjectInfo& object, Found done);
    // The same, as HeadObject described it, which may tell all.
    void find_described(const ObjectInfo& object, Found done);
    void remember(const std::string& key, const std::string& etag, ObjectContent content);

private:
    // Nothing where it was damaged.
    using Reading = std::optional<ObjectContent>;
    using Readings = std::vector<Reading>;

    void fetch_tail(const ObjectInfo& object, Readings before, Found done);
    void tail_here(const ObjectInfo& object, Readings readings, const FetchedRange& tail, const Found& done);
    // As the store's answer says.
    [[nodiscard]] Result<ObjectContent> read_tail(const FetchedRange& tail) const;

    ObjectStore& store_;
    const Codec& codec_;
    FileCache* const files_;

    mutable Mutex mutex_;
    // By hash of key and ETag.
    std::unordered_map<std::uint64_t, ObjectContent> contents_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
