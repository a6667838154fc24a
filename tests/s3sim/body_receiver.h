// SPDX-License-Identifier: Apache-2.0
#pragma once

// Takes in one request body: unframes it, hashes it while it is warm in the cache, and keeps it in pooled chunks.
// A body without framing is received straight into its chunks. Belongs to one connection; not thread-safe.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "byte_chain.h"
#include "chunked_decoder.h"
#include "digest.h"

namespace ckptfs::s3sim {

struct BodyPlan {
    bool keep = false;                    // otherwise the bytes are read and thrown away
    std::uint64_t limit = 0;              // payload bytes; more is refused
    std::optional<std::uint64_t> length;  // Content-Length; absent for transfer encoding "chunked"
    bool transfer_chunked = false;
    bool aws_chunked = false;
    std::vector<DigestKind> digests;           // computed over the payload
    std::optional<std::uint64_t> flip_bit_at;  // payload offset to damage on arrival
};

enum class BodyFailure { kNone, kOutOfMemory, kTooLarge, kBroken };

struct ReceivedBody {
    ByteChain bytes;
    std::map<DigestKind, std::string> digests;  // raw values
    std::vector<NameValue> trailers;
    BodyFailure failure = BodyFailure::kNone;
};

class BodyReceiver {
public:
    // `scratch` and `pool` must outlive this object.
    BodyReceiver(BodyPlan plan, ChunkPool& pool, std::span<std::byte> scratch);

    bool complete() const;
    // Where the next bytes from the wire go: at most `most`, never past the end of a body of known length.
    std::span<std::byte> buffer(std::size_t most);
    // The first `size` bytes of buffer() were filled; returns how many of them belong to this body.
    std::size_t received(std::size_t size);
    // The same for bytes that were read along with the head.
    std::size_t feed(std::span<const std::byte> bytes);

    std::uint64_t wire_bytes() const { return wire_bytes_; }
    std::optional<std::uint64_t> wire_bytes_left() const;
    ReceivedBody take();

private:
    bool framed() const { return plan_.transfer_chunked || plan_.aws_chunked; }
    std::size_t unframe(std::span<const std::byte> bytes);
    void accept_aws_chunked(std::span<const std::byte> bytes);
    void accept_payload(std::span<const std::byte> bytes);
    bool reserve_chunk(std::uint64_t wanted);
    void account_payload(std::span<std::byte> bytes);
    void seal_chunk();
    void fail(BodyFailure failure);

    const BodyPlan plan_;
    ChunkPool& pool_;
    const std::span<std::byte> scratch_;

    std::vector<std::pair<DigestKind, std::unique_ptr<Digest>>> digests_;
    ChunkedDecoder transfer_decoder_;
    ChunkedDecoder aws_decoder_;
    ByteChain bytes_;
    Chunk chunk_;
    std::size_t chunk_filled_ = 0;
    bool buffer_is_chunk_ = false;
    std::uint64_t wire_bytes_ = 0;
    std::uint64_t payload_bytes_ = 0;
    BodyFailure failure_ = BodyFailure::kNone;
};

}  // namespace ckptfs::s3sim
