// SPDX-License-Identifier: Apache-2.0
#include "write/committed_frames.h"

#include <utility>

#include "base/range_fetch.h"

namespace ckptfs {

std::uint64_t CommittedFrames::stored_offset(std::uint64_t frame) const {
    std::uint64_t offset = 0;
    for (std::uint64_t before = 0; before < frame; ++before) {
        offset += records[before].stored_size;
    }
    return offset;
}

void read_committed_frames(ObjectStore& store, const Codec& codec, std::string key, std::string etag,
                           std::function<void(Result<CommittedFrames>)> done) {
    const auto finish = [&codec, done](const ObjectInfo& object, const Payload& tail) {
        auto layout = codec.layout(object, tail);
        if (layout) {
            done(CommittedFrames{codec.encoder_like(object), (*layout)->records()});
        } else {
            done(failure(std::move(layout.error())));
        }
    };
    fetch_range(store, key, etag, ByteRange{0, kSizeTail, true},
                [&store, &codec, key, etag, finish, fail = done](Result<FetchedRange> end) {
                    if (!end) {
                        fail(failure(std::move(end.error())));
                        return;
                    }
                    const Result<std::uint64_t> needed = codec.tail_needed(end->object, end->bytes);
                    if (!needed) {
                        fail(failure(needed.error()));
                        return;
                    }
                    if (*needed <= end->bytes.size()) {
                        finish(end->object, end->bytes);
                        return;
                    }
                    fetch_range(store, key, etag, ByteRange{0, *needed, true},
                                [finish, fail](Result<FetchedRange> table) {
                                    if (table) {
                                        finish(table->object, table->bytes);
                                    } else {
                                        fail(failure(std::move(table.error())));
                                    }
                                });
                });
}

}  // namespace ckptfs
