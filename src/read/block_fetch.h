// SPDX-License-Identifier: Apache-2.0
// One ranged GET that fills a run of adjacent blocks, for layouts whose stored bytes are the file's.
//
// Bytes go from the network's buffer straight into the blocks (the only copy), and each block is handed over as soon as
// it is full, or as soon as a waiting read has what it needs of it. When the request fails, so do the reads that wait
// for the blocks that are not full; the blocks can be fetched again. A version that is gone is remembered as such.
//
// Ownership: keeps itself alive until the store has answered.
// Threads: start() from any thread; the rest runs on the store's threads, one call at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ckptfs/bytes.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "read/block.h"
#include "read/block_cache.h"
#include "read/file_reader.h"

namespace ckptfs {

class BlockFetch : public std::enable_shared_from_this<BlockFetch> {
public:
    static void start(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version,
                      std::shared_ptr<BlockRun> run);

    BlockFetch(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version, std::shared_ptr<BlockRun> run);

private:
    [[nodiscard]] bool take(ByteSpan bytes);
    // Hands out what has come.
    void publish(const std::shared_ptr<CachedBlock>& block, std::uint32_t filled);
    void publish_held_back();
    void end(Result<GetResponse> result);

    ReadEnvironment& environment_;
    const std::shared_ptr<CachedVersion> version_;
    const std::shared_ptr<BlockRun> run_;
    std::uint64_t offset_ = 0;
    std::uint64_t length_ = 0;
    // Index of the block being filled.
    std::size_t current_ = 0;
    // Bytes of it that have come.
    std::uint32_t filled_ = 0;
    std::uint64_t received_ = 0;
    // Of which version the bytes are is known at the end.
    bool is_unidentified_ = false;
};

// Fills the run from what this node keeps of the version, and the rest by ranged GETs, whatever the layout.
void start_fetch(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version, std::shared_ptr<BlockRun> run);

// Keeps a block that a fetch has filled on the node's disk, if it keeps this version.
void keep_on_disk(const CachedVersion& version, const std::shared_ptr<CachedBlock>& block);

// The error that a reader gets for a failed request: ESTALE if the version was replaced or removed.
Error read_error(Error error, const std::string& key);
[[nodiscard]] bool version_is_gone(const Error& error);

}  // namespace ckptfs
