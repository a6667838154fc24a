// SPDX-License-Identifier: Apache-2.0
#include "writeback/body_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/direct_write.h"
#include "support/temporary_directory.h"

namespace ckptfs::testing {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class BodyFileTest : public ::testing::Test {
protected:
    BodyFileTest() : file(*BodyFile::create(directory.path(), 7)) {}

    // In slices that begin and end anywhere, or at whole pages, as buffers and frames do.
    Payload random_bytes(std::uint64_t size) {
        Payload bytes;
        while (bytes.size() < size) {
            const std::uint64_t unit = dice() % 3 == 0 ? 1 : kDirectAlignment;
            const std::uint64_t length = std::min(size - bytes.size(), (1 + dice() % 300) * unit);
            const std::uint64_t shift = dice() % 2 == 0 ? 0 : dice() % kDirectAlignment;
            const std::shared_ptr<char> memory(
                static_cast<char*>(std::aligned_alloc(kDirectAlignment, (length / kDirectAlignment + 2) * 4096)),
                &std::free);
            std::generate_n(memory.get() + shift, length, [this] { return static_cast<char>(dice()); });
            bytes.append(Slice{memory, as_bytes(std::string_view(memory.get() + shift, length))});
        }
        return bytes;
    }

    [[nodiscard]] std::string content(const BodyPiece& piece) const {
        std::string content(piece.size, '\0');
        for (std::uint64_t block = 0; block < checksum_blocks(piece.size); ++block) {
            const std::span part(content.data() + block * kChecksumBlock, checksum_block_size(piece.size, block));
            const Status read = file->read(piece, block, std::as_writable_bytes(part));
            EXPECT_TRUE(read) << read.error().message;
        }
        return content;
    }

    // Of the page cache.
    [[nodiscard]] std::size_t resident_pages(std::uint64_t size) const {
        const FileDescriptor opened(::open(BodyFile::path_of(directory.path(), 7).c_str(), O_RDONLY));
        void* const mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, opened.get(), 0);
        std::vector<unsigned char> pages((size + 4095) / 4096);
        EXPECT_EQ(::mincore(mapped, size, pages.data()), 0);
        ::munmap(mapped, size);
        return static_cast<std::size_t>(
            std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1U) != 0; }));
    }
    // All that is there is in memory.
    [[nodiscard]] bool is_tmpfs() const {
        struct statfs found {};
        return ::statfs(directory.path().c_str(), &found) == 0 && found.f_type == TMPFS_MAGIC;
    }

    TemporaryDirectory directory;
    std::mt19937_64 dice{20261129};  // NOLINT(cert-msc51-cpp): the same run each time
    std::shared_ptr<BodyFile> file;
};

TEST_F(BodyFileTest, GivesBackWhatIsWrittenHoweverItLiesInMemory) {
    std::vector<std::pair<Payload, BodyPiece>> written;
    for (int round = 0; round < 40; ++round) {
        const Payload bytes = random_bytes(dice() % 3 == 0 ? 1 + dice() % 10'000 : kMiB + dice() % (3 * kMiB));
        const Result<BodyPiece> piece = file->write(bytes);
        ASSERT_TRUE(piece);
        ASSERT_EQ(piece->size, bytes.size());
        written.emplace_back(bytes, *piece);
    }
    ASSERT_TRUE(file->sync());
    for (const auto& [bytes, piece] : written) {
        EXPECT_TRUE(content(piece) == bytes.to_string());
    }
}

TEST_F(BodyFileTest, PiecesThatComeAtOnceDoNotTouchEachOther) {
    std::vector<Payload> bytes;
    for (std::uint64_t index = 0; index < 8; ++index) {
        bytes.push_back(random_bytes(index % 2 == 0 ? 2 * kMiB + 1000 + index : 5000));
    }
    std::vector<BodyPiece> pieces(bytes.size());
    std::vector<std::thread> writers;
    for (std::size_t index = 0; index < bytes.size(); ++index) {
        writers.emplace_back([&, index] { pieces[index] = *file->write(bytes[index]); });
    }
    for (std::thread& writer : writers) {
        writer.join();
    }
    for (std::size_t index = 0; index < bytes.size(); ++index) {
        EXPECT_TRUE(content(pieces[index]) == bytes[index].to_string()) << index;
    }
}

TEST_F(BodyFileTest, WhatIsLargeTakesNoPageOfTheCacheButItsLast) {
    const Result<BodyPiece> piece = file->write(random_bytes(4 * kMiB + 123));
    ASSERT_TRUE(piece);
    EXPECT_EQ(resident_pages(piece->size), is_tmpfs() ? 1025U : 1U);
}

TEST_F(BodyFileTest, MoreIsWrittenAfterAFlush) {
    const Payload first = random_bytes(kMiB);
    const Payload second = random_bytes(kMiB + 1);
    const Result<BodyPiece> begins = file->write(first);
    ASSERT_TRUE(file->sync());
    const Result<BodyPiece> follows = file->write(second);
    ASSERT_TRUE(file->sync());
    ASSERT_TRUE(begins && follows);
    EXPECT_TRUE(content(*begins) == first.to_string());
    EXPECT_TRUE(content(*follows) == second.to_string());
}

// Thousands may wait to be sent.
TEST_F(BodyFileTest, WhatIsFlushedHoldsNoDescriptor) {
    const auto open_files = [] {
        return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                             std::filesystem::directory_iterator());
    };
    const auto before = open_files();
    const Payload bytes = random_bytes(2 * kMiB);
    const Result<BodyPiece> piece = file->write(bytes);
    ASSERT_TRUE(piece && file->sync());
    EXPECT_EQ(open_files(), before - 1) << "its own, from when it was made";
    file->keep();
    file = *BodyFile::open(directory.path(), 7);
    EXPECT_EQ(open_files(), before - 1);
    EXPECT_TRUE(content(*piece) == bytes.to_string());
    EXPECT_EQ(open_files(), before - 1);
}

}  // namespace
}  // namespace ckptfs::testing
