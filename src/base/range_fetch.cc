// SPDX-License-Identifier: Apache-2.0
#include "base/range_fetch.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {

namespace {

GetRequest pinned(std::string key, std::string etag, const ByteRange& range) {
    GetRequest request;
    request.key = std::move(key);
    request.range = range;
    request.if_match = std::move(etag);
    return request;
}

void fetch(ObjectStore& store, GetRequest request, std::function<void(Result<FetchedRange>)> done) {
    const auto bytes = std::make_shared<std::string>();
    const std::string key = request.key;
    const ByteRange range = *request.range;
    request.on_body = [bytes, range](ByteSpan more) {
        if (more.size() > range.length - bytes->size()) {
            return false;
        }
        if (bytes->empty()) {
            bytes->reserve(range.length);
        }
        bytes->append(as_text(more));
        return true;
    };
    store.get(std::move(request), [bytes, range, key, done = std::move(done)](Result<GetResponse> result) {
        if (!result) {
            done(failure(std::move(result.error())));
            return;
        }
        const std::uint64_t wanted = range.suffix ? std::min(range.length, result->object.size) : range.length;
        if (bytes->size() != wanted) {
            done(damage(format("{}: the store sent {} bytes instead of {}", escaped(key), bytes->size(), wanted)));
            return;
        }
        FetchedRange fetched{std::move(result->object), Payload::from_string(std::move(*bytes))};
        fetched.object.key = key;
        done(std::move(fetched));
    });
}

}  // namespace

void fetch_range(ObjectStore& store, std::string key, std::string etag, ByteRange range,
                 std::function<void(Result<FetchedRange>)> done) {
    fetch(store, pinned(std::move(key), std::move(etag), range), std::move(done));
}

ByteRange last_bytes(std::uint64_t object_size, std::uint64_t length) {
    const std::uint64_t there = std::min(length, object_size);
    return ByteRange{object_size - there, there, false};
}

void fetch_tail_in(std::shared_ptr<TableRoom> room, ObjectStore& store, const ObjectInfo& object, std::uint64_t length,
                   std::function<void(Result<FetchedRange>)> done) {
    GetRequest request = pinned(object.key, object.etag, last_bytes(object.size, length));
    request.for_open = true;
    fetch(store, std::move(request),
          [room = std::move(room), done = std::move(done)](Result<FetchedRange> end) mutable {
              // Given up here and not when the request is destroyed: the end of a room calls those that wait for one.
              if (end) {
                  end->room = std::move(room);
              }
              room = nullptr;
              done(std::move(end));
          });
}

void fetch_whole_tail(ObjectStore& store, const Codec& codec, FetchedRange tail,
                      std::function<void(Result<FetchedRange>)> done) {
    const std::uint64_t needed = codec.tail_needed(tail.object, tail.bytes).value_or(0);
    if (needed <= tail.bytes.size()) {
        done(std::move(tail));
        return;
    }
    codec.take_room(tail.object, needed, [&store, object = tail.object, needed, done = std::move(done)](auto room) {
        if (room) {
            fetch_tail_in(std::move(*room), store, object, needed, done);
        } else {
            done(failure(std::move(room.error())));
        }
    });
}

}  // namespace ckptfs
