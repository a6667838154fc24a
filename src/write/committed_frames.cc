// SPDX-License-Identifier: Apache-2.0
#include "write/committed_frames.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

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
        const auto layout = codec.layout_in(end.room, end.object, end.bytes);
        if (!layout) {
            return failure(layout.error());
        }
        if ((*layout)->size() != size) {
            return damage(format("{}: its frames do not make {} bytes", escaped(key), size));
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

namespace {

bool are_equal(const CommittedFrames& one, const CommittedFrames& other) {
    return one.plain() == other.plain() && one.records == other.records;
}

// The records of frames that are copied go into the next table as they are, and no checksum covers a table: it is read
// until two readings agree.
class TableReading : public std::enable_shared_from_this<TableReading> {
public:
    TableReading(ObjectStore& store, const Codec& codec, std::string key, CommittedObject committed,
                 std::function<void(Result<CommittedFrames>)> done)
        : store_(store),
          codec_(codec),
          key_(std::move(key)),
          committed_(std::move(committed)),
          done_(std::move(done)) {}

    void go_on() {
        read_table(store_, codec_, key_, committed_,
                   [self = shared_from_this()](Result<CommittedFrames> frames) { self->here(std::move(frames)); });
    }

private:
    void here(Result<CommittedFrames> frames) {
        const bool is_last = ++readings_ == kMostReadings;
        const bool agrees = frames && std::any_of(seen_.begin(), seen_.end(), [&](const CommittedFrames& before) {
                                return are_equal(before, *frames);
                            });
        // A plain object needs no second reading: its size is that of the file.
        if (agrees || (frames && frames->plain()) || (!frames && (is_last || !frames.error().damaged))) {
            done_(std::move(frames));
        } else if (is_last) {
            done_(damage(format("{}: its seek table is damaged on its way, also when read again", escaped(key_))));
        } else {
            if (frames) {
                seen_.push_back(std::move(*frames));
            }
            go_on();
        }
    }

    static constexpr int kMostReadings = 4;

    ObjectStore& store_;
    const Codec& codec_;
    const std::string key_;
    const CommittedObject committed_;
    const std::function<void(Result<CommittedFrames>)> done_;
    std::vector<CommittedFrames> seen_;
    int readings_ = 0;
};

}  // namespace

void read_committed_frames(ObjectStore& store, const Codec& codec, const std::string& key,
                           const CommittedObject& committed, std::function<void(Result<CommittedFrames>)> done) {
    if (!codec.may_be_encoded(committed.stored_size)) {
        done(CommittedFrames{codec.plain_encoder(), {}});
        return;
    }
    std::make_shared<TableReading>(store, codec, key, committed, std::move(done))->go_on();
}

}  // namespace ckptfs
