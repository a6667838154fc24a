// SPDX-License-Identifier: Apache-2.0
// Whatever a bad disk, a kill or a power cut leaves of kept files: a frame is read as it was kept, or not at all.
#include <algorithm>
#include <random>

#include "disk_cache_fixture.h"

namespace ckptfs {
namespace {

class DamagedFiles : public DiskCacheTest {
protected:
    static std::string key_of(int number) { return "file " + std::to_string(number); }
    static Slice content_of(int number, std::size_t size) {
        std::mt19937 bytes(static_cast<unsigned>(number));
        auto text = std::make_shared<std::string>(size, '\0');
        std::generate(text->begin(), text->end(), [&] { return static_cast<char>(bytes()); });
        return Slice{text, as_bytes(*text)};
    }
    void keep_all(int files, std::size_t size) {
        const auto cache = make_cache(1 << 30, files);
        for (int number = 0; number < files; ++number) {
            cache->file(object(key_of(number)), false, size)->keep(0, content_of(number, size));
        }
        EXPECT_TRUE(cache->stop());
        ASSERT_EQ(cache->statistics().frames_left_out, 0U);
    }
    // Empty where it is not there.
    static std::string read(DiskCache& cache, int number, std::size_t size) {
        std::string bytes(size, '\0');
        std::promise<bool> answered;
        const auto file = cache.file(object(key_of(number)), false, size);
        // Else it may be closed between its opening and the look at its records.
        const auto held = file->hold();
        file->read(0, std::as_writable_bytes(std::span(bytes)), [&](bool is_there) { answered.set_value(is_there); });
        return answered.get_future().get() ? bytes : std::string();
    }
    // Of the files, how many were not found as they were kept. None is found in another way.
    int count_missing(int files, std::size_t size) {
        const auto cache = make_cache();
        int missing = 0;
        for (int number = 0; number < files; ++number) {
            const std::string found = read(*cache, number, size);
            missing += found.empty() ? 1 : 0;
            EXPECT_TRUE(found.empty() || as_bytes(found).size() == size) << number;
            EXPECT_TRUE(found.empty() || std::ranges::equal(as_bytes(found), content_of(number, size).bytes)) << number;
        }
        EXPECT_EQ(cache->statistics().failure, "");
        return missing;
    }

    std::mt19937 dice{20'261'127};
};

TEST_F(DamagedFiles, ABitInEachOfAThousandIsFound) {
    constexpr int kFiles = 1000;
    constexpr std::size_t kSize = 5000;
    keep_all(kFiles, kSize);
    for (const auto& path : files()) {
        if (path.extension() == ".data") {
            std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
            const auto offset = static_cast<std::streamoff>(dice() % kSize);
            file.seekg(offset);
            const int byte = file.get();
            file.seekp(offset);
            file.put(static_cast<char>(byte ^ (1 << (dice() % 8))));
        }
    }
    EXPECT_EQ(count_missing(kFiles, kSize), kFiles);
    // What was damaged is forgotten, and kept anew.
    keep_all(kFiles, kSize);
    EXPECT_EQ(count_missing(kFiles, kSize), 0);
}

// Pages that never reached the disk are zeros, or end the file; those of both files did in any order.
TEST_F(DamagedFiles, WhatAPowerCutLeavesIsRightOrMissing) {
    constexpr int kFiles = 300;
    constexpr std::size_t kSize = 20'000;
    constexpr std::size_t kPage = 512;
    keep_all(kFiles, kSize);
    for (const auto& path : files()) {
        const auto size = std::filesystem::file_size(path);
        if (dice() % 4 == 0) {
            std::filesystem::resize_file(path, dice() % (size + 1));
        }
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        for (std::uintmax_t offset = 0; offset < std::filesystem::file_size(path); offset += kPage) {
            if (dice() % 50 == 0) {
                file.seekp(static_cast<std::streamoff>(offset));
                file << std::string(std::min<std::size_t>(kPage, std::filesystem::file_size(path) - offset), '\0');
            }
        }
    }
    const int missing = count_missing(kFiles, kSize);
    EXPECT_GT(missing, kFiles / 4);
    EXPECT_LT(missing, kFiles);
    keep_all(kFiles, kSize);
    EXPECT_EQ(count_missing(kFiles, kSize), 0);
}

}  // namespace
}  // namespace ckptfs
