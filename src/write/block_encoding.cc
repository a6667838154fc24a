// SPDX-License-Identifier: Apache-2.0
#include "write/block_encoding.h"

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "base/digest.h"
#include "base/text.h"

namespace ckptfs {
namespace {

using Frames = std::vector<PartFrame>;

std::uint64_t block_of(const PartFrame& frame) {
    return frame.offset / kFrameSize;
}

// The pieces of the block that begins at `first`.
std::size_t pieces_of_block(const Frames& frames, std::size_t first) {
    std::size_t count = 1;
    while (first + count < frames.size() && block_of(frames[first + count]) == block_of(frames[first])) {
        ++count;
    }
    return count;
}

bool must_encode(const Frames& frames, std::size_t first, std::size_t count) {
    return count > 1 || frames[first].stale;
}

template <class Do>
Status for_each_block(const Frames& frames, const Do& act) {
    for (std::size_t first = 0; first < frames.size();) {
        const std::size_t count = pieces_of_block(frames, first);
        if (Status done = act(first, count); !done) {
            return done;
        }
        first += count;
    }
    return {};
}

// The file's bytes of a piece, changes included, into its place in `block`.
Status compose(const PartFrame& frame, const FrameEncoder& encoder, MutableByteSpan block) {
    const std::uint64_t begin = frame.offset % kFrameSize;
    if (frame.encoded) {
        if (Status decoded = encoder.decode(frame.stored_bytes(), frame.referenced_bytes(),
                                            block.subspan(begin, frame.encoded_size), frame.record.checksum);
            !decoded) {
            return decoded;
        }
    } else {
        frame.bytes.copy_to(0, block.subspan(begin, frame.size));
    }
    for (const auto& [offset, patch] : frame.patches) {
        patch.bytes.copy_to(0, block.subspan(begin + offset, patch.size));
    }
    return {};
}

Payload front_of(Buffer buffer, std::size_t size) {
    Payload payload;
    const ByteSpan bytes = buffer.bytes().first(size);
    payload.append(Slice{std::move(buffer).share(), bytes});
    return payload;
}

class BlockEncoder {
public:
    BlockEncoder(const FrameEncoder& encoder, std::vector<Buffer> buffers)
        : encoder_(encoder), buffers_(std::move(buffers)) {}

    Result<PartFrame> encode(const PartFrame* pieces, std::size_t count) {
        const PartFrame& last = pieces[count - 1];
        if (buffers_.size() < 2 || pieces[0].offset % kFrameSize != 0) {
            return failure(EIO, format("cannot encode what begins at {}", pieces[0].offset));
        }
        Buffer block = take();
        for (std::size_t piece = 0; piece < count; ++piece) {
            if (Status composed = compose(pieces[piece], encoder_, block.bytes()); !composed) {
                return failure(std::move(composed.error()));
            }
        }
        PartFrame whole;
        whole.offset = pieces[0].offset;
        whole.size = last.end() - whole.offset;
        whole.version = last.version + 1;
        Buffer output = take();
        const MutableByteSpan target = output.bytes();
        // Either of the two buffers is free again afterwards.
        const ByteSpan raw = block.bytes().first(whole.size);
        const std::shared_ptr<Buffer> owner = std::make_shared<Buffer>(std::move(block));
        Payload payload;
        payload.append(Slice{owner, raw});
        Result<EncodedFrame> encoded = encoder_.encode(payload, target, EncodeEffort::kNormal);
        if (!encoded) {
            return failure(std::move(encoded.error()));
        }
        payload = Payload();
        if (encoded->stored) {
            buffers_.push_back(std::move(output));
            take_encoded(whole, encoder_, std::move(*encoded), Payload());
        } else {
            buffers_.push_back(std::move(*owner));
            const std::size_t written = encoded->record.stored_size;
            take_encoded(whole, encoder_, std::move(*encoded), front_of(std::move(output), written));
        }
        return whole;
    }

private:
    Buffer take() {
        Buffer buffer = std::move(buffers_.back());
        buffers_.pop_back();
        return buffer;
    }

    const FrameEncoder& encoder_;
    std::vector<Buffer> buffers_;
};

}  // namespace

Status verify_loaded(Frames& frames) {
    const auto differs = [](const Payload& bytes, std::optional<std::uint32_t> expected) {
        return expected && crc32c(bytes) != *expected;
    };
    bool damaged = false;
    for (PartFrame& frame : frames) {
        // Pieces of one patch share its bytes.
        std::set<const std::byte*> verified;
        damaged = damaged || (std::exchange(frame.unverified, false) && differs(frame.stored_bytes(), frame.crc32c));
        for (auto& [offset, patch] : frame.patches) {
            // All that was staged has been loaded.
            if (patch.staged_size > 0) {
                const std::byte* const begin = patch.bytes.slices().front().bytes.data();
                damaged = damaged || (verified.insert(begin).second && differs(patch.bytes, patch.crc32c));
                patch.bytes = patch.bytes.subrange(patch.staged_offset, patch.size);
                patch.staged_size = 0;
            }
        }
    }
    if (damaged) {
        return failure(EIO, "data read back from --staging-dir is corrupted; check that disk");
    }
    return {};
}

Status refresh_plain(Frames& frames, const FrameEncoder& encoder) {
    for (PartFrame& frame : frames) {
        if (!frame.stale) {
            continue;
        }
        frame.bytes = frame.bytes.subrange(0, frame.size);
        for (const auto& [offset, patch] : frame.patches) {
            frame.bytes = with_patch(frame.bytes, offset, patch.bytes);
        }
        Result<EncodedFrame> encoded = encoder.encode(frame.bytes, {}, EncodeEffort::kNormal);
        if (!encoded) {
            return failure(std::move(encoded.error()));
        }
        take_encoded(frame, encoder, std::move(*encoded), Payload());
    }
    return {};
}

std::uint64_t blocks_to_encode(const Frames& frames, std::uint64_t offset, std::uint64_t end) {
    std::uint64_t blocks = 0;
    static_cast<void>(for_each_block(frames, [&](std::size_t first, std::size_t count) -> Status {
        const bool replaced = (frames[first].offset < end && frames[first + count - 1].end() > offset) ||
                              std::any_of(&frames[first], &frames[first] + count,
                                          [=](const PartFrame& frame) { return frame.refers_to(offset, end); });
        blocks += replaced || must_encode(frames, first, count) ? 1 : 0;
        return {};
    }));
    return blocks;
}

Status encode_blocks(Frames& frames, const FrameEncoder& encoder, std::vector<Buffer> buffers) {
    BlockEncoder blocks(encoder, std::move(buffers));
    Frames whole;
    Status status = for_each_block(frames, [&](std::size_t first, std::size_t count) -> Status {
        if (!must_encode(frames, first, count)) {
            whole.push_back(std::move(frames[first]));
            return {};
        }
        Result<PartFrame> frame = blocks.encode(&frames[first], count);
        if (!frame) {
            return failure(std::move(frame.error()));
        }
        whole.push_back(std::move(*frame));
        // What it was made of is not needed any more.
        for (std::size_t piece = first; piece < first + count; ++piece) {
            frames[piece].bytes = Payload();
        }
        return {};
    });
    if (status) {
        frames = std::move(whole);
    }
    return status;
}

void pad_frames(Frames& frames, const FrameEncoder& encoder, std::uint64_t least) {
    constexpr std::uint64_t kLeastPadding = 64;
    std::uint64_t size = 0;
    for (const PartFrame& frame : frames) {
        size += frame.stored_size();
    }
    for (PartFrame& frame : frames) {
        if (size >= least) {
            return;
        }
        if (frame.record.stored_size + kLeastPadding > kMaxStoredFrame) {
            continue;
        }
        Payload padded = encoder.padding(
            std::clamp<std::uint64_t>(least - size, kLeastPadding, kMaxStoredFrame - frame.record.stored_size));
        frame.crc32c = crc32c_combine(crc32c(padded), frame.crc32c.value_or(0), frame.record.stored_size);
        size += padded.size();
        frame.record.stored_size += static_cast<std::uint32_t>(padded.size());
        padded.append(std::move(frame.bytes));
        frame.bytes = std::move(padded);
    }
}

void take_encoded(PartFrame& frame, const FrameEncoder& encoder, EncodedFrame encoded, Payload output) {
    frame.bytes = encoded.stored ? std::move(*encoded.stored) : std::move(output);
    frame.encoded = !encoder.identity();
    frame.encoded_size = frame.size;
    frame.crc32c = encoded.crc32c;
    frame.record = encoded.record;
    frame.references = std::move(encoded.references);
    frame.patches.clear();
    frame.stale = false;
}

}  // namespace ckptfs
