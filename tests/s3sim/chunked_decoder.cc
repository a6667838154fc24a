// SPDX-License-Identifier: Apache-2.0
#include "chunked_decoder.h"

#include <algorithm>
#include <charconv>

#include "http_message.h"

namespace ckptfs::s3sim {
namespace {

constexpr std::size_t kLongestLine = 4096;
constexpr std::size_t kMostTrailers = 32;
constexpr std::uint64_t kLargestChunk = std::uint64_t{1} << 40;

}  // namespace

std::size_t ChunkedDecoder::feed(std::span<const std::byte> bytes, const Sink& sink) {
    std::size_t taken = 0;
    while (taken < bytes.size() && !finished() && !broken()) {
        if (state_ == State::kData) {
            taken += feed_data(bytes.subspan(taken), sink);
            continue;
        }
        const char c = static_cast<char>(bytes[taken++]);
        line_.push_back(c);
        if (c == '\n') {
            take_line();
        } else if (line_.size() > kLongestLine) {
            state_ = State::kBroken;
        }
    }
    return taken;
}

std::size_t ChunkedDecoder::feed_data(std::span<const std::byte> bytes, const Sink& sink) {
    const auto take = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), left_in_chunk_));
    sink(bytes.first(take));
    left_in_chunk_ -= take;
    if (left_in_chunk_ == 0) {
        state_ = State::kDataEnd;
    }
    return take;
}

void ChunkedDecoder::take_line() {
    if (state_ == State::kSize) {
        start_chunk();
    } else if (state_ == State::kDataEnd) {
        state_ = trim(line_).empty() ? State::kSize : State::kBroken;
    } else {
        take_trailer();
    }
    line_.clear();
}

void ChunkedDecoder::start_chunk() {
    const std::string_view size = trim(std::string_view(line_).substr(0, line_.find(';')));
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), left_in_chunk_, 16);
    if (size.empty() || error != std::errc() || end != size.data() + size.size() || left_in_chunk_ > kLargestChunk) {
        state_ = State::kBroken;
    } else {
        state_ = left_in_chunk_ == 0 ? State::kTrailer : State::kData;
    }
}

void ChunkedDecoder::take_trailer() {
    const std::string_view line = trim(line_);
    if (line.empty()) {
        state_ = State::kFinished;
        return;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || trailers_.size() == kMostTrailers) {
        state_ = State::kBroken;
        return;
    }
    trailers_.emplace_back(lower_case(trim(line.substr(0, colon))), std::string(trim(line.substr(colon + 1))));
}

}  // namespace ckptfs::s3sim
