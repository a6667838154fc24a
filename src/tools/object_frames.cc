// SPDX-License-Identifier: Apache-2.0
#include "tools/object_frames.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/range_fetch.h"
#include "base/store_wait.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "codec/codecs.h"

namespace ckptfs {
namespace {

// Includes the table of a file of 5 GiB (12 bytes a frame).
constexpr std::uint64_t kFirstTail = std::uint64_t{64} << 10;

Failure damaged(Error error) {
    error.errno_value = kDamaged;
    return failure(std::move(error));
}

Result<FetchedRange> fetch_part(ObjectStore& store, const std::string& key, const std::string& etag, ByteRange range) {
    return wait_for<FetchedRange>([&](auto done) { fetch_range(store, key, etag, range, std::move(done)); });
}

// Stores differ in their reply for the last bytes of an empty object, and not all support such a range.
Result<FetchedRange> fetch_tail(ObjectStore& store, const std::string& key) {
    Result<FetchedRange> tail = fetch_part(store, key, "", ByteRange{0, kFirstTail, true});
    if (tail || !is_range_outside(tail.error())) {
        return tail;
    }
    Result<ObjectInfo> head = wait_for<ObjectInfo>([&](auto done) { store.head(key, std::move(done)); });
    if (!head) {
        return failure(std::move(head.error()));
    }
    head->key = key;
    if (head->size == 0) {
        return FetchedRange{std::move(*head), {}};
    }
    return fetch_part(store, key, head->etag, last_bytes(head->size, kFirstTail));
}

Result<FetchedRange> whole_tail(ObjectStore& store, const Codec& codec, Result<FetchedRange> tail) {
    return std::move(tail).and_then([&](FetchedRange end) {
        return wait_for<FetchedRange>(
            [&](auto done) { fetch_whole_tail(store, codec, std::move(end), std::move(done)); });
    });
}

Result<OpenObject> open_once(ObjectStore& store, const Codec& codec, const std::string& key) {
    Result<FetchedRange> tail = whole_tail(store, codec, fetch_tail(store, key));
    if (!tail) {
        return failure(std::move(tail.error()));
    }
    auto layout = codec.layout_in(tail->room, tail->object, tail->bytes);
    if (!layout) {
        const bool known = !frame_checksum_name(codec.format_name(tail->object)).empty();
        return known ? damaged(std::move(layout.error())) : failure(std::move(layout.error()));
    }
    const bool lost = codec.may_have_lost_description(tail->object, tail->bytes);
    const auto second_table = std::make_shared<SecondTable>(codec, tail->object, *layout);
    return OpenObject{std::move(tail->object), std::move(*layout), lost, second_table};
}

}  // namespace

Result<OpenObject> open_object(ObjectStore& store, const Codec& codec, const std::string& key) {
    Result<OpenObject> opened = open_once(store, codec, key);
    // The tail may have been damaged only in transit.
    return opened || !opened.error().damaged ? std::move(opened) : open_once(store, codec, key);
}

Result<std::shared_ptr<const FrameLayout>> SecondTable::read(ObjectStore& store) {
    const MutexLock lock(mutex_);
    if (!second_) {
        second_ = fetch(store);
    }
    return *second_;
}

Result<std::shared_ptr<const FrameLayout>> SecondTable::fetch(ObjectStore& store) const {
    const ByteRange range = last_bytes(object_.size, kFirstTail);
    const auto end = whole_tail(store, codec_, fetch_part(store, object_.key, object_.etag, range));
    if (!end) {
        return failure(end.error());
    }
    auto layout = codec_.layout_in(end->room, end->object, end->bytes);
    const bool says_more = layout && !(*layout)->identity() && (*layout)->records() != first_->records();
    return says_more ? *layout : nullptr;
}

std::optional<FrameRun> RunQueue::next() {
    const MutexLock lock(mutex_);
    if (stopped_ || offset_ >= layout_->size()) {
        return std::nullopt;
    }
    FrameRun run;
    run.index = index_++;
    while (run.frames.size() < kFramesPerRun && offset_ < layout_->size()) {
        run.frames.push_back(layout_->frame_at(offset_));
        offset_ += run.frames.back().size;
    }
    return run;
}

void RunQueue::stop() {
    const MutexLock lock(mutex_);
    stopped_ = true;
}

Status RunReader::fetch_range(const OpenObject& from, std::uint64_t offset, MutableByteSpan target) {
    // Shared, because the store may still hold the request when it has answered.
    const auto filled = std::make_shared<std::size_t>(0);
    GetRequest request;
    request.key = from.object.key;
    request.range = ByteRange{offset, target.size(), false};
    request.if_match = from.object.etag;
    request.if_size = from.object.size;
    request.if_modified = from.object.last_modified;
    request.on_body = [target, filled](ByteSpan bytes) {
        if (bytes.size() > target.size() - *filled) {
            return false;
        }
        std::memcpy(target.data() + *filled, bytes.data(), bytes.size());
        *filled += bytes.size();
        return true;
    };
    const auto got = wait_for<GetResponse>([&](auto done) { store_.get(std::move(request), std::move(done)); });
    if (!got) {
        return failure(got.error());
    }
    if (*filled != target.size()) {
        return failure(
            EIO, format("{}: the store sent {} bytes instead of {}", escaped(from.object.key), *filled, target.size()));
    }
    return {};
}

Status RunReader::fetch(const OpenObject& from, const FrameRun& run) {
    if (stored_ == nullptr) {
        stored_ = std::make_unique_for_overwrite<std::byte[]>(kFramesPerRun * kMaxStoredFrame);
    }
    begins_.assign(1, 0);
    for (const Frame& frame : run.frames) {
        begins_.push_back(begins_.back() + frame.stored_size);
    }
    return fetch_range(from, run.frames.front().stored_offset, {stored_.get(), begins_.back()});
}

MutableByteSpan RunReader::stored_memory(std::size_t frame) const {
    return {stored_.get() + begins_[frame], begins_[frame + 1] - begins_[frame]};
}

ByteSpan RunReader::stored(std::size_t frame) const {
    return stored_memory(frame);
}

Result<ByteSpan> RunReader::decode(const OpenObject& from, const FrameRun& run, std::size_t frame) {
    if (from.layout->identity()) {
        return stored(frame);
    }
    if (decoded_ == nullptr) {
        decoded_ = std::make_unique_for_overwrite<std::byte[]>(kFrameSize);
    }
    const Frame& wanted = run.frames[frame];
    const MutableByteSpan target(decoded_.get(), wanted.size);
    const Status decoded = decode_stored(from, wanted, stored(frame), target);
    if (decoded) {
        return target;
    }
    if (decoded.error().errno_value != kDamaged) {
        return failure(decoded.error());
    }
    if (Status again = fetch_range(from, wanted.stored_offset, stored_memory(frame)); !again) {
        return failure(std::move(again.error()));
    }
    if (Status second = decode_stored(from, wanted, stored(frame), target); !second) {
        return second.error().errno_value == kDamaged ? decode_by_second_table(from, wanted, std::move(second.error()))
                                                      : failure(std::move(second.error()));
    }
    return target;
}

Result<ByteSpan> RunReader::decode_by_second_table(const OpenObject& from, const Frame& frame, Error why) {
    const auto table = from.second_table->read(store_);
    if (!table) {
        return failure(table.error());
    }
    if (*table == nullptr || frame.offset >= (*table)->size()) {
        return failure(std::move(why));
    }
    const OpenObject again{from.object, *table, false, from.second_table};
    const Frame second = (*table)->frame_at(frame.offset);
    std::vector<std::byte> stored(second.stored_size);
    if (Status fetched = fetch_range(again, second.stored_offset, stored); !fetched) {
        return failure(std::move(fetched.error()));
    }
    const MutableByteSpan target(decoded_.get(), second.size);
    if (Status decoded = decode_stored(again, second, stored, target); !decoded) {
        return failure(std::move(decoded.error()));
    }
    return target;
}

Status RunReader::decode_stored(const OpenObject& from, const Frame& frame, ByteSpan stored, MutableByteSpan target) {
    Payload payload;
    payload.append(Slice{nullptr, stored});
    const auto references = from.layout->references(frame, payload);
    if (!references) {
        return damaged(references.error());
    }
    const Result<Payload> referenced = read_references(from, *references);
    if (!referenced) {
        return failure(referenced.error());
    }
    return from.layout->decode(frame, payload, *referenced, target).map_error([](Error error) {
        error.errno_value = kDamaged;
        return error;
    });
}

Result<Payload> RunReader::read_references(const OpenObject& from, const std::vector<FileRange>& ranges) {
    std::string bytes;
    for (const FileRange& range : ranges) {
        for (std::uint64_t at = range.offset; at < range.end();) {
            const Frame frame = from.layout->frame_at(at);
            if (Status read = read_referenced_frame(from, frame); !read) {
                return failure(std::move(read.error()));
            }
            const std::uint64_t end = std::min(range.end(), frame.offset + frame.size);
            bytes.append(as_text(ByteSpan(referenced_).subspan(at - frame.offset, end - at)));
            at = end;
        }
    }
    return Payload::from_string(std::move(bytes));
}

Status RunReader::read_referenced_frame(const OpenObject& from, const Frame& frame) {
    if (referenced_from_ == from.layout && referenced_index_ == frame.index) {
        return {};
    }
    referenced_from_ = nullptr;
    referenced_.resize(frame.size);
    std::vector<std::byte> bytes(frame.stored_size);
    Payload stored;
    stored.append(Slice{nullptr, bytes});
    Status decoded;
    for (int attempt = 0; attempt < 2; ++attempt) {
        if (Status fetched = fetch_range(from, frame.stored_offset, bytes); !fetched) {
            return fetched;
        }
        const auto references = from.layout->references(frame, stored);
        if (references && !references->empty()) {
            decoded = failure(
                EIO, format("{}: frame {}: refers to others, and is referred to", from.object.key, frame.index));
        } else {
            decoded = references ? from.layout->decode(frame, stored, {}, referenced_) : failure(references.error());
        }
        if (decoded) {
            referenced_from_ = from.layout;
            referenced_index_ = frame.index;
            return {};
        }
    }
    return damaged(std::move(decoded.error()));
}

}  // namespace ckptfs
