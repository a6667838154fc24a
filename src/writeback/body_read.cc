// SPDX-License-Identifier: Apache-2.0
#include "writeback/body_read.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// Without another buffer. Longer than it takes to evict a block, or to write one to the disk.
constexpr Milliseconds kGiveBackAfter{200};
// While commits have all that they may have.
constexpr Milliseconds kTryAgainAfter{20};

Failure missing_file(const HeldChange& held, const BodyPiece& piece) {
    return failure(EIO, format("{}: body file {} is missing", escaped(held.key()), piece.file));
}

class BodyRead : public std::enable_shared_from_this<BodyRead> {
public:
    BodyRead(const BodySources& sources, std::shared_ptr<const HeldChange> held, std::uint64_t offset,
             std::uint64_t length, TakeBytes take, std::function<void(Status)> done)
        : sources_(sources),
          held_(std::move(held)),
          skip_(offset),
          left_(length),
          take_(std::move(take)),
          done_(std::move(done)) {}

    void go_on() {
        sources_.disk.post([self = shared_from_this()] { self->run(); });
    }

private:
    void run() {
        while (left_ > 0 && piece_ < held_->body.pieces.size()) {
            const BodyPiece& piece = held_->body.pieces[piece_++];
            if (skip_ >= piece.size) {
                skip_ -= piece.size;
                continue;
            }
            const std::uint64_t offset = std::exchange(skip_, 0);
            const std::uint64_t size = std::min(left_, piece.size - offset);
            if (piece.place == BodyPiece::Place::kObject) {
                fetch(piece, offset, size);
                return;
            }
            if (Status read = piece.place == BodyPiece::Place::kInline ? take_inline(piece, offset, size)
                                                                       : take_blocks(piece, offset, size);
                !read) {
                done_(std::move(read));
                return;
            }
            left_ -= size;
        }
        done_(left_ == 0 ? Status() : damage(held_->key() + ": its body on the disk is shorter than the object"));
    }

    Status give(ByteSpan bytes) {
        return take_(bytes) ? Status() : Status(failure(ECANCELED, held_->key() + ": canceled"));
    }

    Status take_inline(const BodyPiece& piece, std::uint64_t offset, std::uint64_t size) {
        return give(as_bytes(piece.bytes).subspan(offset, size));
    }

    // Reads whole blocks, as checksums cover whole blocks.
    Status take_blocks(const BodyPiece& piece, std::uint64_t offset, std::uint64_t size) {
        const BodyFile* const file = held_->body.file(piece.file);
        if (file == nullptr) {
            return missing_file(*held_, piece);
        }
        std::vector<std::byte> bytes;
        while (size > 0) {
            const std::uint64_t block = offset / kChecksumBlock;
            const std::uint64_t inside = offset % kChecksumBlock;
            bytes.resize(checksum_block_size(piece.size, block));
            if (Status read = file->read(piece, block, bytes); !read) {
                return read;
            }
            const std::uint64_t used = std::min(size, bytes.size() - inside);
            if (Status given = give(ByteSpan(bytes).subspan(inside, used)); !given) {
                return given;
            }
            offset += used;
            size -= used;
        }
        return {};
    }

    void fetch(const BodyPiece& piece, std::uint64_t offset, std::uint64_t size) {
        sources_.fetch(
            held_->body, piece, ByteRange{piece.offset + offset, size},
            [self = shared_from_this()](ByteSpan bytes) { return self->take_(bytes); },
            [self = shared_from_this(), size](const Status& fetched) {
                if (!fetched) {
                    self->done_(failure(fetched.error()));
                    return;
                }
                self->left_ -= size;
                self->go_on();
            });
    }

    const BodySources sources_;
    const std::shared_ptr<const HeldChange> held_;
    std::uint64_t skip_;
    std::uint64_t left_;
    const TakeBytes take_;
    const std::function<void(Status)> done_;
    std::size_t piece_ = 0;
};

Result<Payload> load_blocks(const HeldChange& held, const BodyPiece& piece, std::vector<Buffer> buffers) {
    const BodyFile* const file = held.body.file(piece.file);
    if (file == nullptr) {
        return missing_file(held, piece);
    }
    Payload loaded;
    for (std::uint64_t block = 0; block < buffers.size(); ++block) {
        const MutableByteSpan target = buffers[block].bytes().first(checksum_block_size(piece.size, block));
        if (const Status read = file->read(piece, block, target); !read) {
            return failure(read.error());
        }
        loaded.append(Slice{std::move(buffers[block]).share(), target});
    }
    return loaded;
}

}  // namespace

void read_body(const BodySources& sources, std::shared_ptr<const HeldChange> held, std::uint64_t offset,
               std::uint64_t length, TakeBytes take, std::function<void(Status)> done) {
    std::make_shared<BodyRead>(sources, std::move(held), offset, length, std::move(take), std::move(done))->go_on();
}

void PieceLoader::load(std::shared_ptr<const HeldChange> held, const BodyPiece& piece, Loaded done) {
    {
        const MutexLock lock(mutex_);
        waiting_.push_back(std::make_shared<Load>(std::move(held), piece, std::move(done)));
        if (std::exchange(loading_, true)) {
            return;
        }
    }
    next();
}

void PieceLoader::next() {
    std::shared_ptr<Load> load;
    {
        const MutexLock lock(mutex_);
        if (waiting_.empty()) {
            loading_ = false;
            return;
        }
        load = std::move(waiting_.front());
        waiting_.pop_front();
    }
    take_buffers(std::move(load));
}

void PieceLoader::take_buffers(std::shared_ptr<Load> load) {
    const std::uint64_t needed = checksum_blocks(load->piece.size);
    if (needed > pool_.usage().cap[static_cast<std::size_t>(MemoryUse::kCommit)]) {
        // It would wait for ever, and hold up all others.
        end(*load, failure(ENOMEM, format("{}: a part of {} MiB, which the disk has acknowledged, does not fit into "
                                          "--max-memory: mount with more",
                                          load->held->key(), mebibytes(load->piece.size))));
        return;
    }
    std::vector<Buffer> buffers = load->take_all();
    while (buffers.size() < needed) {
        std::optional<Buffer> next = pool_.try_take(MemoryUse::kCommit);
        if (!next) {
            wait_for_buffer(load, std::move(buffers));
            return;
        }
        buffers.push_back(std::move(*next));
    }
    const auto all = std::make_shared<std::vector<Buffer>>(std::move(buffers));
    disk_.post(
        [this, load = std::move(load), all] { end(*load, load_blocks(*load->held, load->piece, std::move(*all))); });
}

// As one that waits, so that the pool asks those that can free some: readers and writers keep what they are not asked
// for. What is held meanwhile is given back after a while: another commit that has the rest may wait for it.
void PieceLoader::wait_for_buffer(const std::shared_ptr<Load>& load, std::vector<Buffer> held) {
    const PoolUsage usage = pool_.usage();
    constexpr auto kUse = static_cast<std::size_t>(MemoryUse::kCommit);
    if (usage.in_use[kUse] >= usage.cap[kUse]) {
        // Only commits can free some. For one that waits, writers would put their data on the disk.
        held.clear();
        timer_.after(kTryAgainAfter, [this, load] { disk_.post([this, load] { take_buffers(load); }); });
        return;
    }
    load->keep(std::move(held));
    // Not on the timer's thread: who gets them may go on there.
    const Timer::Id watch =
        timer_.after(kGiveBackAfter, [this, load] { disk_.post([load] { static_cast<void>(load->take_all()); }); });
    pool_.take(MemoryUse::kCommit, [this, load, watch](Buffer next) {
        timer_.cancel(watch);
        std::vector<Buffer> buffers = load->take_all();
        buffers.push_back(std::move(next));
        load->keep(std::move(buffers));
        take_buffers(load);
    });
}

void PieceLoader::end(const Load& load, Result<Payload> loaded) {
    next();
    load.done(std::move(loaded));
}

}  // namespace ckptfs
