// SPDX-License-Identifier: Apache-2.0
#include "staged/content_view.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "support/inline_executor.h"
#include "support/pattern.h"
#include "support/temporary_directory.h"

namespace ckptfs::testing {
namespace {

// By system calls of this thread; 0 where the kernel does not count it.
std::uint64_t bytes_read() {
    std::ifstream counters("/proc/thread-self/io");
    std::string name;
    std::uint64_t value = 0;
    while (counters >> name >> value) {
        if (name == "rchar:") {
            return value;
        }
    }
    return 0;
}

// As every second field of an array leaves it that was written field by field.
TEST(ContentView, ReadsAPageOfTheDiskOnceHoweverManyPiecesLieInIt) {
    constexpr std::uint64_t kPieces = 4096;
    constexpr std::uint64_t kPiece = 8;
    const std::string written = pattern(2 * kPieces * kPiece);
    const TemporaryDirectory directory;
    const auto staged = std::make_shared<StagedBytes>(directory.path().string(), "dir/file");
    ASSERT_TRUE(staged->write(0, as_bytes(written)));
    StagedContent content;
    std::string expected(written.size(), '\0');
    for (std::uint64_t offset = 0; offset < written.size(); offset += 2 * kPiece) {
        content.write(offset, offset + kPiece);
        expected.replace(offset, kPiece, written, offset, kPiece);
    }
    content.truncate(written.size());
    const ContentView view{content.pieces(0, written.size()), staged, nullptr};
    ASSERT_EQ(view.pieces.size(), 2 * kPieces);

    InlineExecutor disk;
    std::string got(written.size(), 'x');
    std::optional<Status> status;
    const std::uint64_t before = bytes_read();
    read_content(disk, view, std::as_writable_bytes(std::span(got)), [&](Status read) { status = std::move(read); });
    EXPECT_LT(bytes_read() - before, 4 * written.size());
    ASSERT_TRUE(status.has_value() && status->has_value());
    EXPECT_TRUE(got == expected);
}

}  // namespace
}  // namespace ckptfs::testing
