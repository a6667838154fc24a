// SPDX-License-Identifier: Apache-2.0
// The layout of a container whose seek table has not been read, because all of its frames are kept on a disk.
//
// No frame fits what it says, so a frame that turns out to be damaged on the disk is fetched by a table that is read
// then (seek_table.h). Immutable; safe from any thread.
#pragma once

#include <cerrno>
#include <cstdint>
#include <vector>

#include "ckptfs/codec.h"
#include "ckptfs/status.h"

namespace ckptfs {

class UnknownLayout final : public FrameLayout {
public:
    // `size`: of the file.
    explicit UnknownLayout(std::uint64_t size) : size_(size) {}

    [[nodiscard]] std::uint64_t size() const override { return size_; }
    [[nodiscard]] Frame frame_at(std::uint64_t offset) const override {
        return Frame{offset / kFrameSize, offset / kFrameSize * kFrameSize, 0, 0, 0};
    }
    [[nodiscard]] bool identity() const override { return false; }
    [[nodiscard]] const std::vector<FrameRecord>& records() const override { return none_; }
    Status decode(const Frame& /*frame*/, const Payload& /*stored*/, const Payload& /*referenced*/,
                  MutableByteSpan /*target*/) const override {
        return failure(EIO, "the seek table has not been read");
    }

private:
    const std::uint64_t size_;
    const std::vector<FrameRecord> none_;
};

}  // namespace ckptfs
