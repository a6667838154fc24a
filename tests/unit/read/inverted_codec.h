// SPDX-License-Identifier: Apache-2.0
// A format whose frames have to be decoded, and tell when they are damaged.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/digest.h"
#include "read/reading.h"

namespace ckptfs::testing {

// Each frame is its CRC32C and then its bytes, each of them inverted.
inline constexpr std::size_t kFrameHeader = 4;
inline constexpr std::size_t kStoredFrame = kFrameSize + kFrameHeader;

inline std::string encoded(const std::string& content) {
    std::string stored;
    for (std::size_t begin = 0; begin < content.size(); begin += kFrameSize) {
        std::string frame = content.substr(begin, kFrameSize);
        const std::uint32_t crc = crc32c(as_bytes(frame));
        stored.append(reinterpret_cast<const char*>(&crc), sizeof crc);
        for (char& byte : frame) {
            byte = static_cast<char>(~byte);
        }
        stored += frame;
    }
    return stored;
}

class InvertedLayout : public FrameLayout {
public:
    InvertedLayout(std::uint64_t stored_size, bool hostile)
        : size_(stored_size - (stored_size + kStoredFrame - 1) / kStoredFrame * kFrameHeader), hostile_(hostile) {}

    [[nodiscard]] std::uint64_t size() const override { return size_; }
    [[nodiscard]] Frame frame_at(std::uint64_t offset) const override {
        Frame frame;
        frame.index = offset / kFrameSize;
        frame.offset = frame.index * kFrameSize;
        frame.size = std::min<std::uint64_t>(kFrameSize, size_ - frame.offset);
        frame.stored_offset = frame.index * kStoredFrame;
        frame.stored_size = frame.size + kFrameHeader;
        if (hostile_ && frame.index == 1) {
            frame.stored_size = std::uint64_t{1} << 60;
        }
        return frame;
    }
    [[nodiscard]] bool identity() const override { return false; }
    [[nodiscard]] const std::vector<FrameRecord>& records() const override { return none_; }
    Status decode(const Frame& frame, const Payload& stored, const Payload& /*referenced*/,
                  MutableByteSpan target) const override {
        const std::string bytes = stored.to_string();
        for (std::size_t i = 0; i < frame.size; ++i) {
            target[i] = ~static_cast<std::byte>(bytes[kFrameHeader + i]);
        }
        std::uint32_t crc = 0;
        std::memcpy(&crc, bytes.data(), sizeof crc);
        return crc == crc32c(target) ? Status{} : failure(EIO, "wrong checksum");
    }

private:
    const std::uint64_t size_;
    const bool hostile_;
    const std::vector<FrameRecord> none_;
};

class InvertedCodec : public PlainCodec {
public:
    Result<std::shared_ptr<const FrameLayout>> layout(const ObjectInfo& object, const Payload&) const override {
        if (tables_to_damage.fetch_sub(1) > 0) {
            return damage("the table is damaged");
        }
        return std::make_shared<const InvertedLayout>(object.size, hostile);
    }
    [[nodiscard]] std::string format_name(const ObjectInfo&) const override { return "inverted"; }

    bool hostile = false;
    // Those that are read next.
    mutable std::atomic<int> tables_to_damage{0};
};

}  // namespace ckptfs::testing
