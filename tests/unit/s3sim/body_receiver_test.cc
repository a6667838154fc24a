// SPDX-License-Identifier: Apache-2.0
#include "s3sim/body_receiver.h"

#include <gtest/gtest.h>

#include <cstring>

namespace ckptfs::s3sim {
namespace {

class BodyReceiverTest : public ::testing::Test {
protected:
    BodyPlan plan_for(std::size_t length) {
        BodyPlan plan;
        plan.keep = true;
        plan.limit = 1 << 30;
        plan.length = length;
        plan.digests = {DigestKind::kCrc32c};
        return plan;
    }

    // Receives `wire` in pieces of `step`; returns what did not belong to the body.
    std::string receive(BodyReceiver& receiver, std::string wire, std::size_t step) {
        while (!receiver.complete() && !wire.empty()) {
            const auto buffer = receiver.buffer(step);
            const std::size_t size = std::min(buffer.size(), wire.size());
            std::memcpy(buffer.data(), wire.data(), size);
            wire.erase(0, receiver.received(size));
        }
        return wire;
    }

    ChunkPool pool_{64 * kChunkBytes};
    std::vector<std::byte> scratch_ = std::vector<std::byte>(4096);
};

std::string pattern(std::size_t size) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) {
        text[i] = static_cast<char>(i * 31 % 251);
    }
    return text;
}

TEST_F(BodyReceiverTest, KeepsAndHashesAcrossChunks) {
    const std::string sent = pattern(2 * kChunkBytes + 12'345);
    BodyReceiver receiver(plan_for(sent.size()), pool_, scratch_);
    EXPECT_EQ(receive(receiver, sent + "next", 100'000), "next");
    const ReceivedBody body = receiver.take();
    EXPECT_EQ(body.failure, BodyFailure::kNone);
    EXPECT_EQ(body.bytes.to_string(), sent);
    EXPECT_EQ(body.digests.at(DigestKind::kCrc32c), digest_of(DigestKind::kCrc32c, sent));
}

TEST_F(BodyReceiverTest, TakesWhatCameWithTheHead) {
    const std::string sent = pattern(10'000);
    BodyReceiver receiver(plan_for(sent.size()), pool_, scratch_);
    EXPECT_EQ(receiver.feed(std::as_bytes(std::span(sent).first(3000))), 3000U);
    EXPECT_EQ(receive(receiver, sent.substr(3000), 700), "");
    EXPECT_EQ(receiver.take().bytes.to_string(), sent);
}

TEST_F(BodyReceiverTest, ASmallBodyTakesLittleMemory) {
    BodyReceiver receiver(plan_for(10), pool_, scratch_);
    receive(receiver, "0123456789", 100);
    const ReceivedBody body = receiver.take();
    EXPECT_EQ(pool_.bytes_in_use(), 10U);
}

TEST_F(BodyReceiverTest, UnframesAwsChunked) {
    const std::string wire = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32c:abc\r\n\r\n";
    BodyPlan plan = plan_for(wire.size());
    plan.aws_chunked = true;
    BodyReceiver receiver(plan, pool_, scratch_);
    EXPECT_EQ(receive(receiver, wire, 3), "");
    const ReceivedBody body = receiver.take();
    EXPECT_EQ(body.failure, BodyFailure::kNone);
    EXPECT_EQ(body.bytes.to_string(), "hello");
    ASSERT_EQ(body.trailers.size(), 1U);
    EXPECT_EQ(body.trailers[0].second, "abc");
}

TEST_F(BodyReceiverTest, ReportsAnAwsChunkedBodyThatEndsEarly) {
    const std::string wire = "5\r\nhello\r\n";
    BodyPlan plan = plan_for(wire.size());
    plan.aws_chunked = true;
    BodyReceiver receiver(plan, pool_, scratch_);
    receive(receiver, wire, 100);
    EXPECT_EQ(receiver.take().failure, BodyFailure::kBroken);
}

TEST_F(BodyReceiverTest, UnframesAwsChunkedInsideTransferChunked) {
    BodyPlan plan = plan_for(0);
    plan.length.reset();
    plan.transfer_chunked = true;
    plan.aws_chunked = true;
    BodyReceiver receiver(plan, pool_, scratch_);
    EXPECT_EQ(receive(receiver, "a\r\n2\r\nhi\r\n0\r\n\r\n2\r\n\r\n\r\n0\r\n\r\nGET", 4), "GET");
    EXPECT_EQ(receiver.take().bytes.to_string(), "hi");
}

TEST_F(BodyReceiverTest, ReadsOnWhenMemoryIsFull) {
    ChunkPool small(kChunkBytes);
    BodyReceiver receiver(plan_for(2 * kChunkBytes), small, scratch_);
    receive(receiver, pattern(2 * kChunkBytes), 1 << 20);
    EXPECT_TRUE(receiver.complete());
    EXPECT_EQ(receiver.take().failure, BodyFailure::kOutOfMemory);
    EXPECT_EQ(small.bytes_in_use(), 0U);
}

TEST_F(BodyReceiverTest, RefusesMoreThanItsLimit) {
    BodyPlan plan = plan_for(100);
    plan.limit = 99;
    BodyReceiver receiver(plan, pool_, scratch_);
    receive(receiver, pattern(100), 10);
    EXPECT_EQ(receiver.take().failure, BodyFailure::kTooLarge);
}

TEST_F(BodyReceiverTest, DamagesABitOnArrival) {
    BodyPlan plan = plan_for(4);
    plan.flip_bit_at = 2;
    BodyReceiver receiver(plan, pool_, scratch_);
    receive(receiver, "aaaa", 1);
    const ReceivedBody body = receiver.take();
    EXPECT_EQ(body.bytes.to_string(), "aa`a");
    EXPECT_NE(body.digests.at(DigestKind::kCrc32c), digest_of(DigestKind::kCrc32c, "aaaa"));
}

}  // namespace
}  // namespace ckptfs::s3sim
