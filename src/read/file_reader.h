// SPDX-License-Identifier: Apache-2.0
// One version of one object being read.
//
// The first request is one ranged GET of the object's tail, which brings its description, its size and, for small
// files, all of it. Reads are served from the block cache that all handles and processes of the mount share; each
// handle's streams are watched by a pure policy (read_window.h) that grows a window of parallel ranged GETs. Every
// request is pinned by the version's ETag; reads of a version that is gone fail with ESTALE.
//
// Ownership: shared; a reader keeps itself alive while requests are in flight. Cached blocks outlive readers (a version
// read again is served from memory) until memory is needed.
// Threads: all functions may be called from any thread; callbacks run exactly once, on any thread (also inline),
// without locks held.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ckptfs/buffer_pool.h"
#include "ckptfs/bytes.h"
#include "ckptfs/clock.h"
#include "ckptfs/codec.h"
#include "ckptfs/config.h"
#include "ckptfs/executor.h"
#include "ckptfs/file_cache.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs {

class BlockCache;

// Shared by all readers of a mount; outlives them.
struct ReadEnvironment {
    ObjectStore& store;
    BufferPool& pool;
    Executor& executor;
    Clock& clock;
    const Codec& codec;
    BlockCache& cache;
    ReadConfig config;
    // The one that `cache` uses; null if this node keeps nothing.
    FileCache* files = nullptr;
};

// What one open file handle has read so far; made by FileReader::open_stream, one per handle.
class ReadStream {
public:
    virtual ~ReadStream() = default;
};

// kBackground: reads little ahead, so that other readers come first; what it reads is kept on the node's disk even if
// it was in memory.
enum class ReadPace : std::uint8_t { kFull, kBackground };

class FileReader {
public:
    using Opened = std::function<void(Result<std::shared_ptr<FileReader>>)>;
    using ReadDone = std::function<void(Result<Payload>)>;

    // Opens the version that is under the key now, or, with `etag`, that one (ESTALE if it is gone). ENOENT if there is
    // no object. `known_empty` saves the request for an object that a listing has shown to be empty.
    static void open(ReadEnvironment& environment, std::string key, std::string etag, bool known_empty, Opened done);
    // Opens the version that is under the key now: most likely the one with `likely_etag`, which this node may keep.
    static void open_latest(ReadEnvironment& environment, const std::string& key, const std::string& likely_etag,
                            Opened done);
    virtual ~FileReader() = default;

    [[nodiscard]] virtual std::shared_ptr<ReadStream> open_stream(ReadPace pace = ReadPace::kFull) = 0;
    // The store has just reported that it has this version: an earlier reply that it is gone no longer counts.
    virtual void is_there() = 0;
    // Fewer bytes than `size` only at the end of the file. The payload's slices keep their blocks in memory until they
    // are dropped.
    virtual void read(const std::shared_ptr<ReadStream>& stream, std::uint64_t offset, std::size_t size,
                      ReadDone done) = 0;

    // As KeptFile::open_checked(), for this version; -1 also if nothing of it is kept.
    virtual void open_checked(std::function<void(int)> done) = 0;

    // The object as the first reply described it.
    [[nodiscard]] virtual const ObjectInfo& object() const = 0;
    // Size of the file, not of the object.
    [[nodiscard]] virtual std::uint64_t size() const = 0;
    // Whether what read() returns was compared with a checksum that is stored in the object.
    [[nodiscard]] virtual bool checks_bytes() const = 0;
};

}  // namespace ckptfs
