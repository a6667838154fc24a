// SPDX-License-Identifier: Apache-2.0
#pragma once

// Takes apart "SIZE[;extension]CRLF data CRLF ... 0 CRLF trailers CRLF", the framing that both the transfer encoding
// "chunked" and the content encoding "aws-chunked" use. Pure; one per request body.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "outcome.h"

namespace ckptfs::s3sim {

class ChunkedDecoder {
public:
    using Sink = std::function<void(std::span<const std::byte>)>;

    // Feeds `bytes`, passes payload to `sink`, and says how many bytes were taken: all, unless the end was reached.
    std::size_t feed(std::span<const std::byte> bytes, const Sink& sink);

    bool finished() const { return state_ == State::kFinished; }
    bool broken() const { return state_ == State::kBroken; }
    const std::vector<NameValue>& trailers() const { return trailers_; }  // names in lower case

private:
    enum class State { kSize, kData, kDataEnd, kTrailer, kFinished, kBroken };

    std::size_t feed_data(std::span<const std::byte> bytes, const Sink& sink);
    void take_line();
    void start_chunk();
    void take_trailer();

    State state_ = State::kSize;
    std::string line_;
    std::uint64_t left_in_chunk_ = 0;
    std::vector<NameValue> trailers_;
};

}  // namespace ckptfs::s3sim
