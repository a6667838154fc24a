// SPDX-License-Identifier: Apache-2.0
// A small range of an object, in memory of its own: tables and sizes at its end, not file data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ckptfs/codec.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs {

struct FetchedRange {
    ObjectInfo object;
    Payload bytes;
    // The room of a whole tail that had to be fetched, for Codec::layout_in().
    std::shared_ptr<TableRoom> room = nullptr;
};

// Fetches `range` of the version `etag`; a suffix longer than the object gives all of it. EIO if the store sends
// another number of bytes. `done` is called exactly once, on any thread.
void fetch_range(ObjectStore& store, std::string key, std::string etag, ByteRange range,
                 std::function<void(Result<FetchedRange>)> done);

// The last `length` bytes of an object of this size, without asking the store to count from the end: some refuse that.
[[nodiscard]] ByteRange last_bytes(std::uint64_t object_size, std::uint64_t length);

// Fetches the last `length` bytes, a seek table among them, in room that was taken for it.
void fetch_tail_in(std::shared_ptr<TableRoom> room, ObjectStore& store, const ObjectInfo& object, std::uint64_t length,
                   std::function<void(Result<FetchedRange>)> done);

// Passes as many of an object's last bytes as Codec::layout() needs: `tail` if these are enough; else they are fetched,
// in room that is taken before. They are fetched once: if they are damaged, layout() says why.
void fetch_whole_tail(ObjectStore& store, const Codec& codec, FetchedRange tail,
                      std::function<void(Result<FetchedRange>)> done);

}  // namespace ckptfs
