// SPDX-License-Identifier: Apache-2.0
#include "codec/frame_report.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "unit/codec/frame_fixture.h"

namespace ckptfs::testing {
namespace {

std::string stored_frame(const std::string& raw, CodingChoice choice) {
    return encode(Payload::from_string(raw), FrameCoding{choice}).stored;
}

// fp32 whose upper halves repeat and whose lower halves do not.
std::string floats(std::size_t count) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 0.02F);
    std::string bytes(count * sizeof(float), '\0');
    for (std::size_t i = 0; i < count; ++i) {
        const float value = normal(random);
        std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(float));
    }
    return bytes;
}

TEST(FrameReport, TellsZstdFromRawBlocks) {
    EXPECT_EQ(report_frame(as_bytes(stored_frame(std::string(500'000, 'a'), CodingChoice::kZstd))).value().kind,
              FrameKind::kZstd);
    for (const std::size_t size : {1U, 255U, 131'072U, 131'073U, 1'048'576U}) {
        EXPECT_EQ(report_frame(as_bytes(stored_frame(noise(size), CodingChoice::kRaw))).value().kind,
                  FrameKind::kRawBlocks)
            << size;
    }
}

TEST(FrameReport, CountsThePaddingInFront) {
    const std::string frame = stored_frame("a piece of a file", CodingChoice::kRaw);
    const FrameReport report = report_frame(as_bytes(skippable_frame(100).to_string() + frame)).value();
    EXPECT_EQ(report.padding, 100U);
    EXPECT_EQ(report.kind, FrameKind::kRawBlocks);
}

TEST(FrameReport, AccountsForEveryPlane) {
    const std::string raw = floats(200'000);
    const std::string stored = stored_frame(raw, CodingChoice::kPlanes);
    const FrameReport report = report_frame(as_bytes(stored)).value();
    ASSERT_EQ(report.kind, FrameKind::kPlanes);
    std::size_t before = 0;
    std::size_t after = 0;
    std::vector<std::size_t> of_plane(4);
    for (const StoredPlane& plane : report.planes) {
        EXPECT_EQ(plane.width, 4U);
        before += plane.size;
        after += plane.stored_size;
        of_plane[plane.plane] += plane.stored_size;
    }
    EXPECT_EQ(before, raw.size());
    EXPECT_LT(after, stored.size());
    EXPECT_GT(after + 200, stored.size());
    EXPECT_LT(of_plane[3], of_plane[1] * 3 / 4) << "exponents shrink, fractions do not";
}

TEST(FrameReport, RefusesWhatIsNoFrame) {
    const std::string frames[] = {stored_frame(floats(1000), CodingChoice::kPlanes),
                                  stored_frame(noise(3000), CodingChoice::kRaw),
                                  stored_frame(std::string(3000, 'a'), CodingChoice::kZstd)};
    for (const std::string& frame : frames) {
        ASSERT_TRUE(report_frame(as_bytes(frame)));
        for (std::size_t size = 0; size < frame.size(); ++size) {
            const auto report = report_frame(as_bytes(frame).first(size));
            ASSERT_FALSE(report) << size;
            EXPECT_EQ(report.error().errno_value, EIO);
        }
    }
    EXPECT_FALSE(report_frame(as_bytes("PK\x03\x04 something else")));
    EXPECT_FALSE(report_frame(as_bytes(frames[0] + "more")));
}

}  // namespace
}  // namespace ckptfs::testing
