// SPDX-License-Identifier: Apache-2.0
#include "write/kept_block.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/digest.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {

KeptBlock::KeptBlock(WriteEnvironment& environment, Source source, std::uint64_t offset, std::size_t size,
                     FindPlace find_place, Done done)
    : environment_(environment),
      source_(std::move(source)),
      offset_(offset),
      size_(size),
      find_place_(std::move(find_place)),
      done_(std::move(done)) {}

void KeptBlock::fetch() {
    environment_.pool.take(MemoryUse::kWrite, [self = shared_from_this()](Buffer buffer) {
        self->buffer_ = std::move(buffer);
        if (!self->encoded()) {
            self->get(ByteRange{self->offset_, self->size_, false});
            return;
        }
        self->frame_ = self->source_.frames->frame_at(self->offset_, self->source_.size);
        self->environment_.pool.take(MemoryUse::kEncode, [self](Buffer stored) {
            self->stored_ = std::move(stored);
            self->get(self->frame_.range);
        });
    });
}

void KeptBlock::get(const ByteRange& range) {
    range_ = range;
    filled_ = 0;
    GetRequest request;
    request.key = source_.place.key;
    request.range = range_;
    request.if_match = source_.place.etag;
    request.on_body = [self = shared_from_this()](ByteSpan bytes) {
        if (bytes.size() > self->range_.length - self->filled_) {
            return false;
        }
        const Buffer& target = self->encoded() ? self->stored_ : self->buffer_;
        std::memcpy(target.data() + self->filled_, bytes.data(), bytes.size());
        self->filled_ += bytes.size();
        return true;
    };
    environment_.store.get(std::move(request),
                           [self = shared_from_this()](const Result<GetResponse>& result) { self->fetched(result); });
}

void KeptBlock::fetched(const Result<GetResponse>& result) {
    if (!result) {
        if (follow_move()) {
            get(range_);
        } else {
            finish(failure(result.error()));
        }
        return;
    }
    if (filled_ != range_.length) {
        finish(failure(EIO, format("write {}: the store sent {} bytes from offset {} instead of {}",
                                   escaped(source_.place.key), filled_, range_.offset, range_.length)));
        return;
    }
    environment_.executor.post([self = shared_from_this()] {
        if (self->encoded()) {
            self->decode();
        } else {
            self->check();
        }
    });
}

// A rename removes the old name as soon as the copy is there: requests still under way to it are repeated on the copy.
bool KeptBlock::follow_move() {
    std::optional<Place> place = find_place_();
    if (!place || place->key == source_.place.key) {
        return false;
    }
    source_.place = std::move(*place);
    return true;
}

void KeptBlock::check() {
    const std::shared_ptr<const BlockChecksums> checked = source_.checked;
    if (!checked || checked->has(offset_, crc32c(bytes()))) {
        finish({});
    } else if (!std::exchange(again_, true)) {
        get(range_);
    } else if (checked->are_vouched_for || std::exchange(checked_again_, true)) {
        finish(failure(damaged_on_its_way(source_.place.key, offset_)));
    } else {
        fetch_checksums(environment_.store, source_.place.key, source_.place.etag, checked->from, checked->end,
                        [self = shared_from_this()](const Result<std::shared_ptr<const BlockChecksums>>& checksums) {
                            if (!checksums) {
                                self->finish(failure(checksums.error()));
                                return;
                            }
                            self->source_.checked = *checksums;
                            self->environment_.executor.post([self] { self->check(); });
                        });
    }
}

void KeptBlock::decode() {
    const FrameEncoder& encoder = *source_.frames->encoder;
    Payload stored;
    stored.append(Slice{nullptr, stored_.bytes().first(filled_)});
    Status good;
    bool complete = false;
    if (!missing_.empty()) {
        good = take_referenced(stored);
    } else if (referenced_.empty()) {
        const auto references = encoder.references(stored, frame_.offset);
        complete = references && references->empty();
        if (!references) {
            good = failure(references.error());
        } else if (!complete && !frame_.may_refer) {
            good = failure(EIO, "it refers to other frames, although its table says that none does");
        } else if (!complete && !find_referenced(*references)) {
            return;
        }
    } else {
        complete = true;
    }
    if (good && !complete) {
        get(missing_.empty() ? frame_.range : missing_.front().frame.range);
        return;
    }
    if (good) {
        good = encoder.decode(stored, Payload::from_string(std::move(referenced_)), buffer_.bytes().first(frame_.size),
                              frame_.checksum);
    }
    if (!good && again_) {
        good.error().message = format("write {}: what is there cannot be read at offset {}: {}",
                                      escaped(source_.place.key), offset_, good.error().message);
    }
    if (!good && good.error().errno_value == EIO && !std::exchange(again_, true)) {
        // Damaged, perhaps only in transit.
        missing_.clear();
        referenced_.clear();
        get(frame_.range);
        return;
    }
    stored_.reset();
    finish(good);
}

Status KeptBlock::take_referenced(const Payload& stored) {
    const FrameEncoder& encoder = *source_.frames->encoder;
    const CommittedFrame frame = missing_.front().frame;
    const auto references = encoder.references(stored, frame.offset);
    if (!references || !references->empty()) {
        return references ? failure(EIO, "it refers to bytes that refer to others") : failure(references.error());
    }
    const MutableByteSpan raw = buffer_.bytes().first(frame.size);
    if (Status decoded = encoder.decode(stored, {}, raw, frame.checksum); !decoded) {
        return decoded;
    }
    while (!missing_.empty() && missing_.front().frame.offset == frame.offset) {
        referenced_ += as_text(ByteSpan(raw).subspan(missing_.front().begin, missing_.front().size));
        missing_.pop_front();
    }
    return {};
}

// False if the block is no longer wanted.
bool KeptBlock::find_referenced(const std::vector<FileRange>& references) {
    if (!find_place_()) {
        return false;
    }
    for (const FileRange& range : references) {
        for (std::uint64_t at = range.offset; at < range.end();) {
            const CommittedFrame frame = source_.frames->frame_at(at, source_.size);
            const std::uint64_t end = std::min(range.end(), frame.offset + frame.size);
            missing_.push_back({frame, at - frame.offset, end - at});
            at = end;
        }
    }
    return true;
}

}  // namespace ckptfs
