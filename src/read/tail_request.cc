// SPDX-License-Identifier: Apache-2.0
#include "read/tail_request.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/text.h"

namespace ckptfs {

namespace {

class TailRequest : public std::enable_shared_from_this<TailRequest> {
public:
    TailRequest(ObjectStore& store, std::string key, std::string etag, Buffer buffer,
                std::function<void(Result<ObjectTail>)> done)
        : store_(store), key_(std::move(key)), etag_(std::move(etag)), done_(std::move(done)) {
        tail_.buffer = std::move(buffer);
    }

    void get(ByteRange range) {
        expected_ = range.length;
        tail_.size = 0;
        GetRequest request;
        request.key = key_;
        request.range = range;
        request.if_match = etag_;
        request.for_open = true;
        request.on_body = [self = shared_from_this()](ByteSpan bytes) { return self->take(bytes); };
        store_.get(std::move(request), [self = shared_from_this(), range](Result<GetResponse> result) {
            self->got(range, std::move(result));
        });
    }

private:
    bool take(ByteSpan bytes) {
        if (bytes.size() > expected_ - tail_.size) {
            too_much_ = true;
            return false;
        }
        std::memcpy(tail_.buffer.data() + tail_.size, bytes.data(), bytes.size());
        tail_.size += static_cast<std::uint32_t>(bytes.size());
        return true;
    }

    void got(ByteRange range, Result<GetResponse> result) {
        if (too_much_) {
            done_(failure(EIO, format("{}: the store ignores the Range header, which reading needs", key_)));
            return;
        }
        if (result) {
            if (result->object.size > 0 && tail_.size != std::min(range.length, result->object.size)) {
                done_(failure(EIO, format("{}: the store sent {} bytes of the last {}", key_, tail_.size,
                                          std::min(range.length, result->object.size))));
                return;
            }
            if (tail_.size > 0 && result->offset + tail_.size != result->object.size) {
                // On a store without ETags: another version than the one that HeadObject described.
                done_(failure(ESTALE, format("{}: replaced while it was opened; open it again", key_)));
                return;
            }
            finish(std::move(result->object));
            return;
        }
        if (range.suffix && is_range_outside(result.error())) {
            store_.head(key_,
                        [self = shared_from_this()](Result<ObjectInfo> head) { self->described(std::move(head)); });
            return;
        }
        done_(failure(opening_error(std::move(result).error())));
    }

    void described(Result<ObjectInfo> head) {
        if (!head) {
            done_(failure(opening_error(std::move(head).error())));
            return;
        }
        if (!etag_.empty() && head->etag != etag_) {
            Error error;
            error.errno_value = ENOENT;
            done_(failure(opening_error(std::move(error))));
            return;
        }
        if (head->size > 0) {
            etag_ = head->etag;
            const std::uint64_t length = std::min(kTailSize, head->size);
            get(ByteRange{head->size - length, length, false});
            return;
        }
        tail_.size = 0;
        finish(std::move(*head));
    }

    void finish(ObjectInfo object) {
        object.key = key_;
        tail_.offset = object.size - tail_.size;
        tail_.object = std::move(object);
        done_(std::move(tail_));
    }

    Error opening_error(Error error) const {
        const bool gone = error.errno_value == ENOENT || error.errno_value == ESTALE;
        if (gone && !etag_.empty()) {
            error.errno_value = ESTALE;
            error.message = format("{}: this version was replaced or removed; look the name up again", key_);
        }
        return error;
    }

    ObjectStore& store_;
    const std::string key_;
    std::string etag_;
    std::function<void(Result<ObjectTail>)> done_;
    ObjectTail tail_;
    std::uint64_t expected_ = 0;
    bool too_much_ = false;
};

}  // namespace

void request_tail(ObjectStore& store, BufferPool& pool, std::string key, std::string etag,
                  std::function<void(Result<ObjectTail>)> done) {
    pool.take(MemoryUse::kRead, [&store, key = std::move(key), etag = std::move(etag),
                                 done = std::move(done)](Buffer buffer) mutable {
        std::make_shared<TailRequest>(store, std::move(key), std::move(etag), std::move(buffer), std::move(done))
            ->get(ByteRange{0, kTailSize, true});
    });
}

}  // namespace ckptfs
