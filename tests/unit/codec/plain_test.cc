// SPDX-License-Identifier: Apache-2.0
#include "codec/plain.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "base/digest.h"

namespace ckptfs {
namespace {

ObjectInfo object_of(std::uint64_t size) {
    ObjectInfo object;
    object.key = "run/model.pt";
    object.size = size;
    return object;
}

TEST(Plain, PassesFramesThroughWithTheirChecksum) {
    const auto encoder = make_plain_encoder();
    Payload raw = Payload::from_string("123");
    raw.append(Payload::from_string("456789"));
    const auto frame = encoder->encode(raw, {}, EncodeEffort::kNormal);
    ASSERT_TRUE(frame);
    ASSERT_TRUE(frame->stored);
    EXPECT_EQ(frame->stored->to_string(), "123456789");
    EXPECT_EQ(frame->record.stored_size, 9U);
    // The check value of CRC-32C.
    EXPECT_EQ(frame->crc32c, 0xE3069283U);
    EXPECT_EQ(frame->stored->slices()[0].bytes.data(), raw.slices()[0].bytes.data());
}

TEST(Plain, LeavesNoTraceInTheObject) {
    const auto encoder = make_plain_encoder();
    EXPECT_TRUE(encoder->identity());
    EXPECT_TRUE(encoder->tail({FrameRecord{}}, 1).empty());
    EXPECT_TRUE(encoder->metadata(1).empty());
    EXPECT_TRUE(encoder->content_encoding().empty());
}

TEST(Plain, FramesLieWhereTheyLieInTheFile) {
    const auto layout = make_plain_layout(object_of(2 * kFrameSize + 5));
    EXPECT_TRUE(layout->identity());
    EXPECT_EQ(layout->size(), 2 * kFrameSize + 5);
    const Frame last = layout->frame_at(2 * kFrameSize + 4);
    EXPECT_EQ(last.index, 2U);
    EXPECT_EQ(last.offset, 2 * kFrameSize);
    EXPECT_EQ(last.size, 5U);
    EXPECT_EQ(last.stored_offset, last.offset);
    EXPECT_EQ(last.stored_size, last.size);
}

TEST(Plain, RefusesFramesOfAnotherSize) {
    const auto layout = make_plain_layout(object_of(10));
    std::array<std::byte, 10> target{};
    EXPECT_TRUE(layout->decode(layout->frame_at(0), Payload::from_string("0123456789"), {}, target));
    EXPECT_EQ(as_text(target), "0123456789");
    const auto damaged = layout->decode(layout->frame_at(0), Payload::from_string("012345678"), {}, target);
    ASSERT_FALSE(damaged);
    EXPECT_EQ(damaged.error().errno_value, EIO);
    EXPECT_NE(damaged.error().message.find("run/model.pt"), std::string::npos);
}

}  // namespace
}  // namespace ckptfs
