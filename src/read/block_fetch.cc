// SPDX-License-Identifier: Apache-2.0
#include "read/block_fetch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "read/frame_fetch.h"

namespace ckptfs {

bool version_is_gone(const Error& error) {
    return error.errno_value == ESTALE || error.errno_value == ENOENT || is_condition_failed(error) ||
           (error.http_status == 404 && !error.retryable);
}

void keep_on_disk(const CachedVersion& version, const std::shared_ptr<CachedBlock>& block) {
    if (version.kept != nullptr) {
        version.kept->keep(block->offset / kFrameSize, Slice{block, block->bytes()});
    }
}

Error read_error(Error error, const std::string& key) {
    if (version_is_gone(error)) {
        error.errno_value = ESTALE;
        error.message = format("{}: the version being read was replaced or removed; open the file again", key);
    }
    return error;
}

namespace {

// Fetches the blocks of the run that are not full yet.
void fetch_from_store(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version,
                      std::shared_ptr<BlockRun> run) {
    if (version->layout->identity()) {
        BlockFetch::start(environment, std::move(version), std::move(run));
    } else {
        start_frame_fetch(environment, std::move(version), std::move(run));
    }
}

// Reads what this node keeps of a run, from the front up to the first block that is missing; the rest is fetched.
class KeptRun final : public std::enable_shared_from_this<KeptRun> {
public:
    KeptRun(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version, std::shared_ptr<BlockRun> run)
        : environment_(environment), version_(std::move(version)), run_(std::move(run)) {}

    void read_next() {
        if (next_ == run_->blocks.size() || run_->abandoned.load()) {
            run_->is_kept = true;
            environment_.cache.finish(*run_, std::nullopt);
            return;
        }
        const CachedBlock& block = *run_->blocks[next_];
        version_->kept->read(block.offset / kFrameSize, block.bytes(),
                             [self = shared_from_this()](bool is_there) { self->answered(is_there); });
    }

private:
    void answered(bool is_there) {
        if (!is_there) {
            fetch_from_store(environment_, version_, run_);
            return;
        }
        const std::shared_ptr<CachedBlock> block = run_->blocks[next_++];
        block->stored.reset();
        block->filled.store(block->size);
        environment_.cache.filled(block);
        read_next();
    }

    ReadEnvironment& environment_;
    const std::shared_ptr<CachedVersion> version_;
    const std::shared_ptr<BlockRun> run_;
    std::size_t next_ = 0;
};

}  // namespace

void start_fetch(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version, std::shared_ptr<BlockRun> run) {
    if (run->abandoned.load()) {
        environment.cache.finish(*run, std::nullopt);
    } else if (version->kept != nullptr && version->kept->may_have(run->blocks.front()->offset / kFrameSize)) {
        std::make_shared<KeptRun>(environment, std::move(version), std::move(run))->read_next();
    } else {
        fetch_from_store(environment, std::move(version), std::move(run));
    }
}

void BlockFetch::start(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version,
                       std::shared_ptr<BlockRun> run) {
    auto fetch = std::make_shared<BlockFetch>(environment, std::move(version), std::move(run));
    GetRequest request = fetch->version_->request(ByteRange{fetch->offset_, fetch->length_, false});
    request.on_body = [fetch](ByteSpan bytes) { return fetch->take(bytes); };
    request.on_unidentified = [fetch] { fetch->is_unidentified_ = true; };
    environment.store.get(std::move(request), [fetch](Result<GetResponse> result) { fetch->end(std::move(result)); });
}

BlockFetch::BlockFetch(ReadEnvironment& environment, std::shared_ptr<CachedVersion> version,
                       std::shared_ptr<BlockRun> run)
    : environment_(environment), version_(std::move(version)), run_(std::move(run)) {
    // Blocks at the front may have been filled by KeptRun.
    while (run_->blocks[current_] == nullptr) {
        ++current_;
    }
    offset_ = run_->blocks[current_]->offset;
    for (std::size_t next = current_; next < run_->blocks.size(); ++next) {
        length_ += run_->blocks[next]->size;
    }
}

bool BlockFetch::take(ByteSpan bytes) {
    if (run_->abandoned.load(std::memory_order_relaxed)) {
        return false;
    }
    received_ += bytes.size();
    while (!bytes.empty()) {
        if (current_ == run_->blocks.size()) {
            return false;
        }
        // The run lets go of a block that is full.
        const std::shared_ptr<CachedBlock> block = run_->blocks[current_];
        const std::size_t size = std::min<std::size_t>(bytes.size(), block->size - filled_);
        std::memcpy(block->buffer.data() + filled_, bytes.data(), size);
        bytes = bytes.subspan(size);
        filled_ += static_cast<std::uint32_t>(size);
        if (!is_unidentified_) {
            publish(block, filled_);
        }
        if (filled_ == block->size) {
            ++current_;
            filled_ = 0;
        }
    }
    return true;
}

void BlockFetch::publish(const std::shared_ptr<CachedBlock>& block, std::uint32_t filled) {
    block->filled.store(filled);
    const bool full = filled == block->size;
    if (full) {
        keep_on_disk(*version_, block);
    }
    if (full || filled >= block->wake_at.load()) {
        environment_.cache.filled(block);
    }
}

void BlockFetch::publish_held_back() {
    for (std::size_t each = 0; each < run_->blocks.size(); ++each) {
        const std::shared_ptr<CachedBlock> block = run_->blocks[each];
        if (block != nullptr && block->filled.load() < block->size) {
            publish(block, block->size);
        }
    }
}

void BlockFetch::end(Result<GetResponse> result) {
    environment_.cache.count_fetched(received_);
    if (run_->abandoned.load()) {
        environment_.cache.finish(*run_, std::nullopt);
        return;
    }
    if (!result) {
        const Error error = read_error(std::move(result).error(), version_->key);
        if (version_is_gone(error)) {
            environment_.cache.mark_gone(*version_, error);
        }
        environment_.cache.finish(*run_, error);
        return;
    }
    if (received_ != length_) {
        Error error;
        error.message = format("{}: the store sent {} bytes for the {} bytes at offset {}", version_->key, received_,
                               length_, offset_);
        environment_.cache.finish(*run_, error);
        return;
    }
    if (is_unidentified_) {
        publish_held_back();
    }
    environment_.cache.finish(*run_, std::nullopt);
}

}  // namespace ckptfs
