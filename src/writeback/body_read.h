// SPDX-License-Identifier: Apache-2.0
// Reads the bytes of a body that is not in the bucket, or not all of it: to reply to a GET, or as the body of a request
// that sends them.
//
// Ownership: what is passed by reference outlives the callback. Threads: as ObjectStore; waits for the disk happen on
// `disk`.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/buffer_pool.h"
#include "ckptfs/bytes.h"
#include "ckptfs/clock.h"
#include "ckptfs/executor.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "writeback/overlay.h"

namespace ckptfs {

// Takes bytes in order, as GetRequest::on_body.
using TakeBytes = std::function<bool(ByteSpan)>;

// Where the bytes of a body come from.
struct BodySources {
    Executor& disk;
    // Fetches `range` of the object that `piece`, one of this body's, names.
    std::function<void(const Body& body, const BodyPiece& piece, ByteRange range, TakeBytes take,
                       std::function<void(Status)> done)>
        fetch;
};

// Passes `length` bytes of the body, from `offset` on, to `take`, then calls `done`. Keeps `held` until then.
void read_body(const BodySources& sources, std::shared_ptr<const HeldChange> held, std::uint64_t offset,
               std::uint64_t length, TakeBytes take, std::function<void(Status)> done);

// Loads pieces that lie in files into buffers for commits, one at a time: two loads that wait for each other's buffers
// would never end. If other commits hold the missing buffers, it returns its own and tries again. A piece that does not
// fit into what commits may have is ENOMEM.
class PieceLoader {
public:
    PieceLoader(Executor& disk, BufferPool& pool, Timer& timer) : disk_(disk), pool_(pool), timer_(timer) {}
    // Only after all loads have called back.
    ~PieceLoader() = default;
    PieceLoader(const PieceLoader&) = delete;
    PieceLoader& operator=(const PieceLoader&) = delete;

    using Loaded = std::function<void(Result<Payload>)>;
    // `piece`: one of the body of `held`.
    void load(std::shared_ptr<const HeldChange> held, const BodyPiece& piece, Loaded done) EXCLUDES(mutex_);

private:
    struct Load {
        Load(std::shared_ptr<const HeldChange> of, const BodyPiece& loaded, Loaded callback)
            : held(std::move(of)), piece(loaded), done(std::move(callback)) {}
        // What it has while it waits for more.
        void keep(std::vector<Buffer> buffers) EXCLUDES(mutex_) {
            const MutexLock lock(mutex_);
            buffers_ = std::move(buffers);
        }
        std::vector<Buffer> take_all() EXCLUDES(mutex_) {
            const MutexLock lock(mutex_);
            return std::exchange(buffers_, {});
        }

        const std::shared_ptr<const HeldChange> held;
        const BodyPiece& piece;
        const Loaded done;

    private:
        Mutex mutex_;
        std::vector<Buffer> buffers_ GUARDED_BY(mutex_);
    };
    void next() EXCLUDES(mutex_);
    void take_buffers(std::shared_ptr<Load> load);
    void wait_for_buffer(const std::shared_ptr<Load>& load, std::vector<Buffer> held);
    void end(const Load& load, Result<Payload> loaded);

    Executor& disk_;
    BufferPool& pool_;
    Timer& timer_;
    Mutex mutex_;
    std::deque<std::shared_ptr<Load>> waiting_ GUARDED_BY(mutex_);
    bool loading_ GUARDED_BY(mutex_) = false;
};

}  // namespace ckptfs
