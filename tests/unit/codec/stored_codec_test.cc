// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "base/digest.h"
#include "codec/codecs.h"

namespace ckptfs {
namespace {

std::unique_ptr<Codec> stored() {
    return std::move(make_codec("none").value());
}

ObjectInfo object_of(std::uint64_t size) {
    ObjectInfo object;
    object.key = "run/model.pt";
    object.size = size;
    return object;
}

TEST(StoredCodec, IsTheOnlyNameKnown) {
    EXPECT_TRUE(make_codec("none"));
    const auto unknown = make_codec("zip\n");
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.error().errno_value, EINVAL);
    EXPECT_EQ(unknown.error().message.find('\n'), std::string::npos);
}

TEST(StoredCodec, PassesFramesThroughWithTheirChecksum) {
    const auto encoder = stored()->encoder("run/model.pt");
    Payload raw = Payload::from_string("123");
    raw.append(Payload::from_string("456789"));
    const auto frame = encoder->encode(raw);
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->stored.to_string(), "123456789");
    EXPECT_EQ(frame->size, 9U);
    // The check value of CRC-32C.
    EXPECT_EQ(frame->crc32c, 0xe3069283U);
    // Not copied: the same bytes in memory.
    EXPECT_EQ(frame->stored.slices()[0].bytes.data(), raw.slices()[0].bytes.data());
}

TEST(StoredCodec, AddsNothingToTheObject) {
    const auto encoder = stored()->encoder("run/model.pt");
    EXPECT_TRUE(encoder->tail({Frame{0, 0, 9, 0, 9}}).empty());
    EXPECT_TRUE(encoder->metadata().empty());
    EXPECT_TRUE(encoder->content_encoding().empty());
}

TEST(StoredCodec, LaysFramesOutAsTheFile) {
    const std::uint64_t size = 2 * kFrameSize + 10;
    const auto layout = stored()->layout(object_of(size), Payload());
    ASSERT_TRUE(layout);
    EXPECT_TRUE((*layout)->identity());
    EXPECT_EQ((*layout)->size(), size);
    const struct {
        std::uint64_t at, index, offset, size;
    } cases[] = {
        {0, 0, 0, kFrameSize},
        {kFrameSize - 1, 0, 0, kFrameSize},
        {kFrameSize, 1, kFrameSize, kFrameSize},
        {2 * kFrameSize, 2, 2 * kFrameSize, 10},
        {size - 1, 2, 2 * kFrameSize, 10},
    };
    for (const auto& expected : cases) {
        const Frame frame = (*layout)->frame_at(expected.at);
        EXPECT_EQ(frame.index, expected.index);
        EXPECT_EQ(frame.offset, expected.offset);
        EXPECT_EQ(frame.size, expected.size);
        EXPECT_EQ(frame.stored_offset, expected.offset);
        EXPECT_EQ(frame.stored_size, expected.size);
    }
}

TEST(StoredCodec, DecodesByCopyingAndRefusesAnotherLength) {
    const auto layout = stored()->layout(object_of(5), Payload());
    std::array<std::byte, 5> target{};
    const Frame frame = (*layout)->frame_at(0);
    ASSERT_TRUE((*layout)->decode(frame, Payload::from_string("hello"), target));
    EXPECT_EQ(as_text(target), "hello");
    const auto cut = (*layout)->decode(frame, Payload::from_string("hell"), target);
    ASSERT_FALSE(cut);
    EXPECT_EQ(cut.error().errno_value, EIO);
    EXPECT_NE(cut.error().message.find("run/model.pt"), std::string::npos);
}

TEST(StoredCodec, KnowsEverySizeFromTheDescription) {
    EXPECT_TRUE(stored()->size_is_known(object_of(0)));
    EXPECT_TRUE(stored()->size_is_known(object_of(kFrameSize * 7)));
}

}  // namespace
}  // namespace ckptfs
