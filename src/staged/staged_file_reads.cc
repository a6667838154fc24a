// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "staged/staged_file_impl.h"

namespace ckptfs {

void StagedFile::read(std::uint64_t offset, std::size_t size, ReadDone done) {
    size = std::min(size, BufferPool::kPayloadSize);
    const auto keep = self();
    MutexLock lock(mutex_);
    if (end_.failure()) {
        outbox_.add([done = std::move(done), why = *end_.failure()] { done(failure(why)); });
        deliver(lock);
        return;
    }
    ContentView view{content_.pieces(offset, offset + size), staged_, base_ ? base_->reader : nullptr};
    const bool changed = std::any_of(view.pieces.begin(), view.pieces.end(),
                                     [](const ContentPiece& piece) { return piece.source == ByteSource::kStaged; });
    if (changed && stream_) {
        pending_.add(std::make_shared<Pending>(PendingRead{offset, size, std::move(done)}));
        advance();
    } else {
        // A process that reads what was just written will do so again.
        may_stream_ = may_stream_ && !changed;
        outbox_.add([keep, view = std::move(view), offset, cuts = cuts_, done = std::move(done)]() mutable {
            keep->serve(std::move(view), offset, cuts, std::move(done));
        });
    }
    deliver(lock);
}

bool StagedFile::was_cut_since(std::uint64_t cuts) const {
    const MutexLock lock(mutex_);
    return cuts_ != cuts;
}

void StagedFile::serve(ContentView view, std::uint64_t offset, std::uint64_t cuts, ReadDone done) {
    const auto size = static_cast<std::size_t>(view.size());
    if (view.pieces.empty()) {
        done(Payload());
    } else if (view.only(ByteSource::kBase)) {
        read_base(view.base, offset, size, std::move(done));
    } else {
        // A waiter for memory to read the base into holds none of that kind: blocks are fetched and given up by
        // a request that holds nothing else, so that these reads end. Encoding, which shares the other kind, waits for
        // none.
        const bool reads_base = std::any_of(view.pieces.begin(), view.pieces.end(), [](const ContentPiece& piece) {
            return piece.source == ByteSource::kBase;
        });
        const MemoryUse use = reads_base ? MemoryUse::kEncode : MemoryUse::kRead;
        environment_.write.pool.take(
            use, [keep = self(), view = std::move(view), offset, size, cuts, done = std::move(done)](Buffer buffer) {
                const MutableByteSpan target = buffer.bytes().first(size);
                auto owner = std::move(buffer).share();
                read_content(keep->environment_.write.staging, view, target,
                             [keep, base = view.base, offset, target, cuts, owner = std::move(owner),
                              done](const Status& status) mutable {
                                 if (status && keep->was_cut_since(cuts)) {
                                     // What was cut off reads as zeros, and as what was written there since.
                                     owner.reset();
                                     keep->read(offset, target.size(), std::move(done));
                                     return;
                                 }
                                 if (status) {
                                     Payload bytes;
                                     bytes.append(Slice{std::move(owner), target});
                                     done(std::move(bytes));
                                     return;
                                 }
                                 owner.reset();
                                 keep->read_again(base, offset, target.size(), status.error(), std::move(done));
                             });
            });
    }
}

void StagedFile::read_base(const std::shared_ptr<BaseReader>& base, std::uint64_t offset, std::size_t size,
                           ReadDone done) {
    base->read(offset, size, [keep = self(), base, offset, size, done = std::move(done)](Result<Payload> bytes) {
        if (bytes) {
            done(std::move(bytes));
        } else {
            keep->read_again(base, offset, size, bytes.error(), done);
        }
    });
}

void StagedFile::read_again(const std::shared_ptr<BaseReader>& base, std::uint64_t offset, std::size_t size,
                            const Error& why, ReadDone done) {
    bool is_replaced_by_own = false;
    if (why.errno_value == ESTALE) {
        const MutexLock lock(mutex_);
        is_replaced_by_own = base_ && base_->reader != base;
        // The store may have carried out a commit whose reply is not here yet. The queue goes on when that commit ends.
        if (!is_replaced_by_own && committing_ && !end_.failure()) {
            pending_.add(std::make_shared<Pending>(PendingRead{offset, size, std::move(done)}));
            return;
        }
    }
    if (is_replaced_by_own) {
        read(offset, size, std::move(done));
        return;
    }
    log_error(escaped(why.message));
    done(failure(why));
}

}  // namespace ckptfs
