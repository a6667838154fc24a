// SPDX-License-Identifier: Apache-2.0
#include "body_receiver.h"

#include <algorithm>
#include <cstring>

namespace ckptfs::s3sim {

BodyReceiver::BodyReceiver(BodyPlan plan, ChunkPool& pool, std::span<std::byte> scratch)
    : plan_(std::move(plan)), pool_(pool), scratch_(scratch) {
    for (const DigestKind kind : plan_.digests) {
        digests_.emplace_back(kind, make_digest(kind));
    }
}

bool BodyReceiver::complete() const {
    if (plan_.transfer_chunked) {
        return transfer_decoder_.finished() || transfer_decoder_.broken();
    }
    return wire_bytes_ >= plan_.length.value_or(0);
}

std::optional<std::uint64_t> BodyReceiver::wire_bytes_left() const {
    if (plan_.transfer_chunked) {
        return std::nullopt;
    }
    return plan_.length.value_or(0) - wire_bytes_;
}

std::span<std::byte> BodyReceiver::buffer(std::size_t most) {
    most = static_cast<std::size_t>(std::min<std::uint64_t>(most, wire_bytes_left().value_or(most)));
    buffer_is_chunk_ = plan_.keep && !framed() && failure_ == BodyFailure::kNone;
    if (buffer_is_chunk_ && *wire_bytes_left() + payload_bytes_ > plan_.limit) {
        fail(BodyFailure::kTooLarge);
        buffer_is_chunk_ = false;
    }
    if (buffer_is_chunk_) {
        buffer_is_chunk_ = reserve_chunk(*wire_bytes_left());
    }
    if (!buffer_is_chunk_) {
        return scratch_.first(std::min(most, scratch_.size()));
    }
    return {chunk_.data.get() + chunk_filled_, std::min(most, chunk_.capacity - chunk_filled_)};
}

std::size_t BodyReceiver::received(std::size_t size) {
    if (!buffer_is_chunk_) {
        return feed(scratch_.first(size));
    }
    account_payload({chunk_.data.get() + chunk_filled_, size});
    chunk_filled_ += size;
    wire_bytes_ += size;
    if (chunk_filled_ == chunk_.capacity || complete()) {
        seal_chunk();
    }
    return size;
}

std::size_t BodyReceiver::feed(std::span<const std::byte> bytes) {
    if (const auto left = wire_bytes_left(); left && bytes.size() > *left) {
        bytes = bytes.first(static_cast<std::size_t>(*left));
    }
    std::size_t taken = bytes.size();
    if (framed()) {
        taken = unframe(bytes);
    } else {
        accept_payload(bytes);
    }
    wire_bytes_ += taken;
    return taken;
}

std::size_t BodyReceiver::unframe(std::span<const std::byte> bytes) {
    if (!plan_.transfer_chunked) {
        accept_aws_chunked(bytes);
        return bytes.size();
    }
    const std::size_t taken = transfer_decoder_.feed(bytes, [this](std::span<const std::byte> payload) {
        if (plan_.aws_chunked) {
            accept_aws_chunked(payload);
        } else {
            accept_payload(payload);
        }
    });
    if (transfer_decoder_.broken()) {
        fail(BodyFailure::kBroken);
    }
    return taken;
}

void BodyReceiver::accept_aws_chunked(std::span<const std::byte> bytes) {
    aws_decoder_.feed(bytes, [this](std::span<const std::byte> payload) { accept_payload(payload); });
    if (aws_decoder_.broken()) {
        fail(BodyFailure::kBroken);
    }
}

void BodyReceiver::accept_payload(std::span<const std::byte> bytes) {
    while (!bytes.empty() && plan_.keep && failure_ == BodyFailure::kNone) {
        if (payload_bytes_ + bytes.size() > plan_.limit) {
            fail(BodyFailure::kTooLarge);
        } else if (reserve_chunk(framed() ? kChunkBytes : *wire_bytes_left())) {
            const std::size_t step = std::min(bytes.size(), chunk_.capacity - chunk_filled_);
            std::memcpy(chunk_.data.get() + chunk_filled_, bytes.data(), step);
            account_payload({chunk_.data.get() + chunk_filled_, step});
            chunk_filled_ += step;
            bytes = bytes.subspan(step);
            if (chunk_filled_ == chunk_.capacity) {
                seal_chunk();
            }
        }
    }
}

bool BodyReceiver::reserve_chunk(std::uint64_t wanted) {
    if (!chunk_) {
        chunk_ = pool_.get(static_cast<std::size_t>(std::min<std::uint64_t>(wanted, kChunkBytes)));
        chunk_filled_ = 0;
    }
    if (!chunk_) {
        fail(BodyFailure::kOutOfMemory);
    }
    return static_cast<bool>(chunk_);
}

void BodyReceiver::account_payload(std::span<std::byte> bytes) {
    if (plan_.flip_bit_at && *plan_.flip_bit_at - payload_bytes_ < bytes.size()) {
        bytes[static_cast<std::size_t>(*plan_.flip_bit_at - payload_bytes_)] ^= std::byte{1};
    }
    for (const auto& [kind, digest] : digests_) {
        digest->update(bytes);
    }
    payload_bytes_ += bytes.size();
}

void BodyReceiver::seal_chunk() {
    if (!chunk_) {
        return;
    }
    if (chunk_filled_ <= chunk_.capacity / 2) {
        // A small tail must not hold a whole chunk; it is cheap to move.
        if (Chunk fitted = pool_.get(chunk_filled_); fitted) {
            std::memcpy(fitted.data.get(), chunk_.data.get(), chunk_filled_);
            chunk_ = std::move(fitted);
        }
    }
    bytes_.append(Slice{std::move(chunk_.data), chunk_filled_});
    chunk_ = {};
}

void BodyReceiver::fail(BodyFailure failure) {
    if (failure_ == BodyFailure::kNone) {
        failure_ = failure;
        bytes_ = {};
        chunk_ = {};
    }
}

ReceivedBody BodyReceiver::take() {
    seal_chunk();
    ReceivedBody body;
    if (plan_.aws_chunked && !aws_decoder_.finished()) {
        fail(BodyFailure::kBroken);
    }
    body.bytes = std::move(bytes_);
    for (const auto& [kind, digest] : digests_) {
        body.digests[kind] = digest->finish();
    }
    body.trailers = plan_.aws_chunked ? aws_decoder_.trailers() : transfer_decoder_.trailers();
    body.failure = failure_;
    return body;
}

}  // namespace ckptfs::s3sim
