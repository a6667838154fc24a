// SPDX-License-Identifier: Apache-2.0
// The container's frame table, to the byte: ckptfs-format(5). Pure.
//
// After the frames comes a tail of two skippable frames (RFC 8878, 3.1.2): padding, and the table in the seekable
// format of the zstd project (contrib/seekable_format, version 0.1.0), so that `zstd -d` skips both.
// All input here is untrusted and is checked before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ckptfs/codec.h"

namespace ckptfs {

// Whether frames of a format can refer to others.
enum class References : bool { kNever, kPossible };

// The tail of an object for a file of `size` bytes cut into frames.size() frames.
[[nodiscard]] std::string container_tail(const std::vector<FrameRecord>& frames, std::uint64_t size,
                                         References references);
// Size of a skippable frame's header.
inline constexpr std::uint64_t kSkippableHeader = 8;
// A skippable frame of `size` bytes, which is at least kSkippableHeader; its content is zeros.
[[nodiscard]] Payload skippable_frame(std::uint64_t size);
// How many bytes of skippable frames `stored` begins with; EIO if they do not end within it.
Result<std::uint64_t> leading_skippable(ByteSpan stored);

// Size of the table that the footer (the object's last bytes) announces. EIO if there is no such table, or an object of
// this size could not hold it.
Result<std::uint64_t> table_size(ByteSpan end, std::uint64_t object_size);
// The size of the file, from the last kSizeTail bytes or more.
Result<std::uint64_t> container_file_size(ByteSpan end, std::uint64_t object_size);

// Where each frame lies.
class FrameTable {
public:
    // `end`: the object's last bytes, the whole table among them.
    static Result<FrameTable> parse(ByteSpan end, std::uint64_t object_size, References references);

    [[nodiscard]] std::uint64_t size() const { return size_; }
    [[nodiscard]] Frame frame(std::uint64_t index) const;
    [[nodiscard]] const std::vector<FrameRecord>& records() const { return records_; }

private:
    std::uint64_t size_ = 0;
    std::vector<FrameRecord> records_;
    // Stored offset of every kStride-th frame: a quarter of a byte per frame in memory, instead of eight bytes.
    static constexpr std::uint64_t kStride = 32;
    std::vector<std::uint64_t> offsets_;
};

}  // namespace ckptfs
