// SPDX-License-Identifier: Apache-2.0
// Checksums of the blocks of a plain object that are fetched to be written again.
//
// A bit that flips in transit would be in the next version for good, and no part of a plain object has a checksum of
// its own. So blocks are fetched twice: first all of them by one request, for their checksums, then one by one. The
// store's own checksum of the object vouches for the first fetch, if the store keeps one and the whole object is
// fetched.
//
// Threads: BlockChecksums is constant once it is handed out; the function may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ckptfs/buffer_pool.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs {

struct BlockChecksums {
    std::string etag;
    // Range of the object that the checksums cover.
    std::uint64_t from = 0;
    std::uint64_t end = 0;
    // CRC-32C of each BufferPool::kPayloadSize bytes.
    std::vector<std::uint32_t> checksums;
    // The store vouches for the checksums. If not, a block that does not have its checksum may be right, and the
    // checksum wrong.
    bool are_vouched_for = false;

    // Whether `checksum` is that of the block which begins at `offset` of the object.
    [[nodiscard]] bool has(std::uint64_t offset, std::uint32_t checksum) const {
        const std::uint64_t index = (offset - from) / BufferPool::kPayloadSize;
        return index < checksums.size() && checksum == checksums[index];
    }
};

// The error for bytes that did not have their checksum twice.
[[nodiscard]] Error damaged_on_its_way(const std::string& key, std::uint64_t offset);

// Fetches the checksums of the bytes [from, end), which need not be the end of the object. Asks once more if the reply
// is damaged. `done` is called exactly once, on any thread.
void fetch_checksums(ObjectStore& store, std::string key, std::string etag, std::uint64_t from, std::uint64_t end,
                     std::function<void(Result<std::shared_ptr<const BlockChecksums>>)> done);

}  // namespace ckptfs
