// SPDX-License-Identifier: Apache-2.0
#include "write/committed_frames.h"

#include <algorithm>
#include <utility>

#include "base/range_fetch.h"
#include "base/text.h"
#include "ckptfs/log.h"

namespace ckptfs {

std::uint64_t CommittedFrames::stored_offset(std::uint64_t frame) const {
    std::uint64_t offset = 0;
    for (std::uint64_t before = 0; before < frame; ++before) {
        offset += records[before].stored_size;
    }
    return offset;
}

CommittedFrame CommittedFrames::frame_at(std::uint64_t offset, std::uint64_t size) const {
    const std::uint64_t index = offset / kFrameSize;
    CommittedFrame frame;
    frame.offset = index * kFrameSize;
    frame.size = std::min<std::uint64_t>(kFrameSize, size - frame.offset);
    frame.range = ByteRange{stored_offset(index), records[index].stored_size, false};
    frame.checksum = records[index].checksum;
    frame.may_refer = records[index].may_refer;
    return frame;
}

CopyPlan plan_kept_copy(const CommittedFrames& frames, std::uint64_t kept, const PartPlan& plan) {
    if (frames.plain()) {
        return plan_copy(kept, plan);
    }
    const std::uint64_t whole = kept / kFrameSize;
    if (plan.equal_size() != 0 || whole == 0) {
        return {};
    }
    CopyPlan copy = plan_whole_copy(frames.stored_offset(whole));
    copy.fetch_from = copy.pieces.empty() ? 0 : whole * kFrameSize;
    return copy;
}

namespace {

void read_table(ObjectStore& store, const Codec& codec, const std::string& key, const CommittedObject& committed,
                std::function<void(Result<CommittedFrames>)> done) {
    const auto parse = [&codec, key, size = committed.size](const FetchedRange& end) -> Result<CommittedFrames> {
        const auto layout = codec.layout(end.object, end.bytes);
        if (!layout) {
            return failure(layout.error());
        }
        if ((*layout)->size() != size) {
            return failure(EIO, format("{}: its frames do not make {} bytes", escaped(key), size));
        }
        return CommittedFrames{codec.encoder_like(end.object), (*layout)->records()};
    };
    fetch_range(store, key, committed.etag, last_bytes(committed.stored_size, kSizeTail),
                [&store, &codec, parse, done = std::move(done)](Result<FetchedRange> end) {
                    if (!end) {
                        done(failure(std::move(end.error())));
                        return;
                    }
                    fetch_whole_tail(store, codec, std::move(*end),
                                     [parse, done](const Result<FetchedRange>& tail) { done(tail.and_then(parse)); });
                });
}

}  // namespace

void read_committed_frames(ObjectStore& store, const Codec& codec, const std::string& key,
                           const CommittedObject& committed, std::function<void(Result<CommittedFrames>)> done) {
    if (!codec.may_be_encoded(committed.stored_size)) {
        done(CommittedFrames{codec.plain_encoder(), {}});
        return;
    }
    read_table(store, codec, key, committed,
               [&store, &codec, key, committed, done = std::move(done)](Result<CommittedFrames> frames) {
                   if (!frames && frames.error().errno_value == EIO) {
                       // Damaged, perhaps on its way only.
                       read_table(store, codec, key, committed, done);
                   } else {
                       done(std::move(frames));
                   }
               });
}

}  // namespace ckptfs
