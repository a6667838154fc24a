// SPDX-License-Identifier: Apache-2.0
#include "s3sim/chunked_decoder.h"

#include <gtest/gtest.h>

namespace ckptfs::s3sim {
namespace {

struct Decoded {
    std::string payload;
    std::size_t taken = 0;
    ChunkedDecoder decoder;
};

Decoded decode(std::string_view text, std::size_t step) {
    Decoded result;
    const auto bytes = std::as_bytes(std::span(text));
    while (result.taken < bytes.size() && !result.decoder.finished() && !result.decoder.broken()) {
        const auto piece = bytes.subspan(result.taken, std::min(step, bytes.size() - result.taken));
        result.taken += result.decoder.feed(piece, [&](std::span<const std::byte> payload) {
            result.payload.append(reinterpret_cast<const char*>(payload.data()), payload.size());
        });
    }
    return result;
}

TEST(ChunkedDecoder, DecodesInPiecesOfAnySize) {
    const std::string text =
        "5;chunk-signature=0123\r\nhello\r\n"
        "10\r\n0123456789abcdef\r\n"
        "0;chunk-signature=ff\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\nrest";
    for (std::size_t step = 1; step <= text.size(); ++step) {
        const Decoded result = decode(text, step);
        EXPECT_TRUE(result.decoder.finished());
        EXPECT_EQ(result.payload, "hello0123456789abcdef");
        EXPECT_EQ(text.substr(result.taken), "rest");
        ASSERT_EQ(result.decoder.trailers().size(), 1U);
        EXPECT_EQ(result.decoder.trailers()[0], NameValue("x-amz-checksum-crc32", "AAAAAA=="));
    }
}

TEST(ChunkedDecoder, RefusesWhatIsNoChunk) {
    EXPECT_TRUE(decode("xyz\r\n", 100).decoder.broken());
    EXPECT_TRUE(decode("\r\n", 100).decoder.broken());
    EXPECT_TRUE(decode("-5\r\nhello\r\n", 100).decoder.broken());
    EXPECT_TRUE(decode("fffffffffffffffff\r\n", 100).decoder.broken());
    EXPECT_TRUE(decode("2\r\nabc\r\n", 100).decoder.broken());
    EXPECT_TRUE(decode(std::string(10'000, '1'), 100).decoder.broken());
    EXPECT_TRUE(decode("0\r\nno colon here\r\n", 100).decoder.broken());
}

}  // namespace
}  // namespace ckptfs::s3sim
