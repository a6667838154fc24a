// SPDX-License-Identifier: Apache-2.0
#include "codec/zstd_frames.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/little_endian.h"

namespace ckptfs {
namespace {

constexpr std::uint32_t kMagic = 0xFD2FB528;
// Of zstd 0.7, which libzstd still reads.
constexpr std::uint32_t kLegacyMagic = 0xFD2FB527;
constexpr std::uint32_t kSkippableMagic = 0x184D2A50;

std::string with_magic(std::uint32_t magic, const std::string& rest) {
    std::string frame(sizeof magic, '\0');
    store_u32(reinterpret_cast<std::byte*>(frame.data()), magic);
    return frame + rest;
}

// As zstd 0.7 writes it: a size of one byte, one block that is stored as it is, and the end.
std::string legacy_frame(std::uint32_t magic, const std::string& raw) {
    constexpr char kOneSegment = 0x20;
    constexpr char kStored = 0x40;
    constexpr char kEnd = static_cast<char>(0xC0);
    const char size = static_cast<char>(raw.size());
    return with_magic(magic, std::string{kOneSegment, size, kStored, '\0', size} + raw + std::string{kEnd, '\0', '\0'});
}

bool decodes(const std::string& stored, const std::string& expected) {
    std::string raw(expected.size(), '\0');
    ZstdCoder coder;
    return coder.decompress(as_bytes(stored), std::as_writable_bytes(std::span(raw))) && raw == expected;
}

std::string compressed(const std::string& raw) {
    std::vector<std::byte> output(1000);
    ZstdCoder coder;
    const std::size_t size = coder.compress(as_bytes(raw), output, 3);
    return std::string(as_text(ByteSpan(output).first(size)));
}

TEST(ZstdFrames, AreThoseOfTodayOnly) {
    const std::string raw = "layer.0.weight layer.0.weight layer.0.weight";
    EXPECT_TRUE(decodes(compressed(raw), raw));
    EXPECT_FALSE(decodes(legacy_frame(kLegacyMagic, raw), raw));
    EXPECT_FALSE(decodes(legacy_frame(kMagic, raw), raw));
}

TEST(ZstdFrames, AreNotWhatDecodersSkip) {
    const std::string skippable = with_magic(kSkippableMagic, std::string("\4\0\0\0", 4) + "skip");
    EXPECT_FALSE(decodes(skippable, ""));
    EXPECT_FALSE(decodes(skippable + compressed("text"), "text"));
    EXPECT_FALSE(decodes(compressed("text") + skippable, "text"));
    EXPECT_FALSE(decodes("", ""));
    EXPECT_FALSE(decodes("abc", ""));
}

}  // namespace
}  // namespace ckptfs
