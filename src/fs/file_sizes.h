// SPDX-License-Identifier: Apache-2.0
// How long the file in an object is, where the object's own size does not tell.
//
// Nearly all objects show by their size that they are plain (Codec::may_be_encoded). Of the rest the end is asked for,
// once for each version. The size of a damaged one is that of the object, so that it can still be listed and removed;
// opening it says what is wrong.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "ckptfs/codec.h"
#include "ckptfs/object_store.h"

namespace ckptfs {

class FileSizes {
public:
    FileSizes(ObjectStore& store, const Codec& codec) : store_(store), codec_(codec) {}

    // Without a request; empty where one is needed.
    [[nodiscard]] std::optional<std::uint64_t> known(const ObjectInfo& object) const;
    // `object` as a list described it. ENOENT or ESTALE where this version is gone.
    void find(const ObjectInfo& object, std::function<void(Result<std::uint64_t> size)> done);
    // The same, as HeadObject described it, which may tell the size.
    void find_described(const ObjectInfo& object, std::function<void(Result<std::uint64_t> size)> done);
    void remember(const std::string& key, const std::string& etag, std::uint64_t size);

private:
    ObjectStore& store_;
    const Codec& codec_;

    mutable std::mutex mutex_;
    // By hash of key and ETag; guarded by mutex_.
    std::unordered_map<std::uint64_t, std::uint64_t> sizes_;
};

}  // namespace ckptfs
