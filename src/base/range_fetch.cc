// SPDX-License-Identifier: Apache-2.0
#include "base/range_fetch.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {

void fetch_range(ObjectStore& store, std::string key, std::string etag, ByteRange range,
                 std::function<void(Result<FetchedRange>)> done) {
    const auto bytes = std::make_shared<std::string>();
    GetRequest request;
    request.key = key;
    request.range = range;
    request.if_match = std::move(etag);
    request.on_body = [bytes, range](ByteSpan more) {
        if (more.size() > range.length - bytes->size()) {
            return false;
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
            done(
                failure(EIO, format("{}: the store sent {} bytes instead of {}", escaped(key), bytes->size(), wanted)));
            return;
        }
        FetchedRange fetched{std::move(result->object), Payload::from_string(std::move(*bytes))};
        fetched.object.key = key;
        done(std::move(fetched));
    });
}

}  // namespace ckptfs
