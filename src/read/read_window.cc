// SPDX-License-Identifier: Apache-2.0
#include "read/read_window.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "ckptfs/codec.h"

namespace ckptfs {

namespace {

// Reads within this many blocks of each other are treated as a pattern.
constexpr std::uint64_t kNearby = 4;

std::uint64_t block_of(std::uint64_t offset) {
    return offset / kFrameSize;
}

std::uint64_t distance(std::uint64_t a, std::uint64_t b) {
    return a > b ? a - b : b - a;
}

}  // namespace

ReadPlan ReadWindow::on_read(std::uint64_t offset, std::uint64_t size, Found found, std::uint64_t limit,
                             RequestLimits requests) {
    ++reads_;
    bytes_ += size;
    ReadPlan plan;
    const std::uint64_t end = offset + size;
    const BlockSpan read{block_of(offset), block_of(end - 1) + 1};
    Stream* stream = find(offset);
    const bool is_new = stream == nullptr;
    if (is_new) {
        stream = &begin_at(read, end, plan);
    } else {
        absorb_those_met(*stream, offset);
    }
    stream->last_read = reads_;
    stream->last_bytes = bytes_;
    plan.stream = index_of(*stream);
    give_up_stopped(plan);
    if (found != Found::kReady) {
        stream->waited = true;
    }
    if (found == Found::kAbsent) {
        // What was fetched ahead has been evicted since: start over from here.
        stream->asked = read.end;
    }

    // A handle's first read at the head is nearly always the beginning of a walk through the file.
    const bool from_the_head = is_new && offset == 0;
    plan.jumps = is_new && !from_the_head;
    const bool follows = !is_new && (stream->window > 0 || end > stream->position);
    if (!follows && !from_the_head) {
        plan_neighbourhood(read, found, limit, requests, plan);
        return plan;
    }
    const std::uint64_t share = share_of(*stream, limit);
    if (from_the_head) {
        stream->window = kFirstWindow;
    } else {
        advance(*stream, end, share);
    }
    plan_ahead(*stream, share, requests, plan);
    return plan;
}

bool ReadWindow::may_continue_at(const Stream& stream, std::uint64_t offset) {
    return stream.in_use && distance(stream.position, offset) <= reordered_blocks(stream) * kFrameSize;
}

BlockSpan ReadWindow::ahead_of(const Stream& stream) {
    return BlockSpan{block_of(stream.position), stream.asked};
}

bool ReadWindow::has_just_begun(const Stream& stream) {
    return block_of(stream.position) < stream.begun_at + kFirstWindow;
}

bool ReadWindow::is_active(const Stream& stream) const {
    return stream.in_use && stream.window > 0 &&
           (stream.last_read + kActiveReads > reads_ || stream.last_bytes + kActiveBytes > bytes_);
}

bool ReadWindow::are_one(const Stream& one, const Stream& other) const {
    const auto rests = [this](const Stream& stream) { return stream.last_read + kInterleavedReads < reads_; };
    return std::min(one.window, other.window) <= kFirstWindow || rests(one) || rests(other);
}

std::size_t ReadWindow::index_of(const Stream& stream) const {
    return static_cast<std::size_t>(&stream - streams_.data());
}

ReadWindow::Stream* ReadWindow::find(std::uint64_t offset) {
    Stream* nearest = nullptr;
    for (Stream& stream : streams_) {
        if (may_continue_at(stream, offset) &&
            (nearest == nullptr || distance(stream.position, offset) < distance(nearest->position, offset))) {
            nearest = &stream;
        }
    }
    return nearest;
}

// A new stream replaces a single probe before it replaces a stream.
ReadWindow::Stream& ReadWindow::begin_at(BlockSpan read, std::uint64_t end, ReadPlan& plan) {
    const auto rank = [](const Stream& stream) {
        return std::pair(stream.in_use ? (stream.window > 0 ? 2 : 1) : 0, stream.last_read);
    };
    Stream& stream = *std::min_element(streams_.begin(), streams_.end(),
                                       [&](const Stream& a, const Stream& b) { return rank(a) < rank(b); });
    give_up(stream, plan);
    stream = Stream{};
    stream.in_use = true;
    stream.position = end;
    stream.asked = read.end;
    stream.consumed = read.begin;
    stream.begun_at = read.begin;
    stream.grown_at = read.begin;
    return stream;
}

// Keeps what either stream has proved, and the earlier position: what lies between the two has not been read.
void ReadWindow::absorb_those_met(Stream& stream, std::uint64_t offset) {
    for (Stream& other : streams_) {
        if (&other == &stream || !may_continue_at(other, offset) || !are_one(stream, other)) {
            continue;
        }
        if (stream.asked >= block_of(other.position)) {
            stream.asked = std::max(stream.asked, other.asked);
        }
        stream.window = std::max(stream.window, other.window);
        stream.position = std::min(stream.position, other.position);
        stream.consumed = std::min(stream.consumed, other.consumed);
        stream.begun_at = std::min(stream.begun_at, other.begun_at);
        stream.grown_at = std::min(stream.grown_at, block_of(stream.position));
        stream.waited = stream.waited || other.waited;
        other = Stream{};
        other.absorbed_by = index_of(stream);
    }
}

void ReadWindow::give_up_stopped(ReadPlan& plan) {
    for (Stream& stream : streams_) {
        if (stream.in_use && stream.window > 0 && !is_active(stream) && !ahead_of(stream).empty()) {
            give_up(stream, plan);
            stream.asked = block_of(stream.position);
        }
    }
}

// Blocks that another active stream will reach are not given up.
void ReadWindow::give_up(const Stream& stream, ReadPlan& plan) const {
    if (!stream.in_use || stream.window == 0) {
        return;
    }
    std::vector<BlockSpan> unwanted{ahead_of(stream)};
    for (const Stream& other : streams_) {
        const BlockSpan wanted = ahead_of(other);
        if (&other == &stream || !is_active(other) || wanted.empty()) {
            continue;
        }
        std::vector<BlockSpan> rest;
        for (const BlockSpan& span : unwanted) {
            rest.push_back({span.begin, std::min(span.end, std::max(wanted.begin, span.begin))});
            rest.push_back({std::max(span.begin, std::min(wanted.end, span.end)), span.end});
        }
        std::erase_if(rest, [](const BlockSpan& span) { return span.empty(); });
        unwanted = std::move(rest);
    }
    std::copy_if(unwanted.begin(), unwanted.end(), std::back_inserter(plan.abandoned),
                 [](const BlockSpan& span) { return !span.empty(); });
}

// The share of a stream that has just begun is computed as if all other active streams were walks; most of them will
// not be.
std::uint64_t ReadWindow::share_of(const Stream& stream, std::uint64_t limit) const {
    const auto active = static_cast<std::uint64_t>(
        std::count_if(streams_.begin(), streams_.end(), [this](const Stream& each) { return is_active(each); }));
    return limit / std::max<std::uint64_t>(has_just_begun(stream) ? active : sequential_streams(), 1);
}

std::uint64_t ReadWindow::reordered_blocks(const Stream& stream) {
    return std::clamp(stream.window, kNewStreamReorderedBlocks, kReorderedBlocks);
}

void ReadWindow::advance(Stream& stream, std::uint64_t end, std::uint64_t limit) {
    if (end <= stream.position) {
        return;
    }
    stream.position = end;
    const std::uint64_t block = block_of(end);
    if (stream.window == 0) {
        stream.window = kFirstWindow;
        stream.grown_at = block;
        stream.waited = false;
        return;
    }
    // Half a window has been read since the last time, and the reader still waits for the link.
    if (stream.waited && stream.window < limit &&
        block >= stream.grown_at + std::max<std::uint64_t>(stream.window / 2, 1)) {
        stream.window = std::min(stream.window * kGrowth, limit);
        stream.grown_at = block;
        stream.waited = false;
    }
}

std::uint64_t ReadWindow::blocks_per_request(std::uint64_t window, RequestLimits requests) const {
    std::uint64_t per_window = requests.crowded ? kRequestsPerWindowInACrowd : kRequestsPerWindow;
    std::uint64_t most = kMaxBlocksPerRequest;
    if (requests.slowed_to > 0) {
        // At least two: one is read while the next arrives.
        const auto streams = std::max<std::uint64_t>(sequential_streams(), 1);
        per_window = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(requests.slowed_to) / streams, 2, per_window);
        most = requests.slowed_to > 1 ? kMaxBlocksPerSlowedRequest : kMaxBlocksInTurns;
    }
    return std::clamp<std::uint64_t>(window / per_window, 1, most);
}

void ReadWindow::plan_ahead(Stream& stream, std::uint64_t limit, RequestLimits requests, ReadPlan& plan) const {
    const std::uint64_t window = std::min(stream.window, limit);
    const std::uint64_t position = block_of(stream.position - 1) + 1;
    stream.asked = std::max(stream.asked, position);
    const std::uint64_t target = std::min(position + window, block_count_);
    plan.blocks_per_request = blocks_per_request(window, requests);
    if (target >= stream.asked + plan.blocks_per_request || (target == block_count_ && target > stream.asked)) {
        plan.ahead = BlockSpan{stream.asked, target};
        stream.asked = target;
    }
    // Pieces of reads before the furthest one may still be under way.
    const std::uint64_t behind = reordered_blocks(stream);
    const std::uint64_t passed = block_of(stream.position);
    if (passed > stream.consumed + behind) {
        plan.consumed = BlockSpan{stream.consumed, passed - behind};
        stream.consumed = passed - behind;
    }
}

void ReadWindow::plan_neighbourhood(BlockSpan read, Found found, std::uint64_t limit, RequestLimits requests,
                                    ReadPlan& plan) {
    for (Neighbourhood& known : neighbourhoods_) {
        // Near it counts too, so that walks in steps or backwards are recognised.
        const std::uint64_t reach = std::max(known.blocks.count(), kNearby);
        if (!known.blocks.empty() && read.begin < known.blocks.end + reach &&
            read.begin + reach >= known.blocks.begin) {
            if (!known.useful) {
                known.useful = true;
                neighbourhood_size_ = std::min(neighbourhood_size_ * 2, kMaxNeighbourhood);
            }
            if (found != Found::kAbsent) {
                return;
            }
            break;
        }
    }
    if (found != Found::kAbsent) {
        return;
    }
    Neighbourhood& oldest = neighbourhoods_[next_neighbourhood_];
    next_neighbourhood_ = (next_neighbourhood_ + 1) % neighbourhoods_.size();
    if (!oldest.blocks.empty() && !oldest.useful) {
        neighbourhood_size_ = std::max<std::uint64_t>(neighbourhood_size_ / 2, 1);
    }
    const std::uint64_t size = std::clamp<std::uint64_t>(limit, 1, neighbourhood_size_);
    const std::uint64_t begin = read.begin / size * size;
    oldest = Neighbourhood{BlockSpan{begin, std::min(begin + size, block_count_)}, false};
    if (size > 1) {
        plan.ahead = oldest.blocks;
        plan.blocks_per_request = requests.slowed_to > 0 ? plan.ahead.count() : 1;
    }
}

void ReadWindow::not_fetched(const ReadPlan& plan, std::uint64_t first, bool memory_is_short) {
    const Stream& planned = streams_[plan.stream];
    Stream& stream = streams_[planned.in_use ? plan.stream : planned.absorbed_by];
    if (stream.window == 0 || stream.asked < plan.ahead.begin) {
        return;
    }
    stream.asked = std::min(stream.asked, std::max(first, block_of(stream.position - 1) + 1));
    if (memory_is_short) {
        stream.window = std::max<std::uint64_t>(stream.window / 2, 1);
        stream.grown_at = block_of(stream.position);
        stream.waited = false;
    }
}

std::size_t ReadWindow::sequential_streams() const {
    return static_cast<std::size_t>(std::count_if(streams_.begin(), streams_.end(), [this](const Stream& stream) {
        return is_active(stream) && !has_just_begun(stream) && stream.asked < block_count_;
    }));
}

std::vector<BlockSpan> ReadWindow::outstanding() const {
    std::vector<BlockSpan> spans;
    for (const Stream& stream : streams_) {
        if (stream.in_use && stream.window > 0 && !ahead_of(stream).empty()) {
            spans.push_back(ahead_of(stream));
        }
    }
    return spans;
}

}  // namespace ckptfs
