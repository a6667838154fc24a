// SPDX-License-Identifier: Apache-2.0
// A cache directory in a temporary one, and files that are kept in it. Time stands still.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "ckptfs/codec.h"
#include "disk/disk_cache.h"
#include "support/hand_timer.h"
#include "support/manual_clock.h"
#include "support/temporary_directory.h"

namespace ckptfs {

using namespace testing;

class DiskCacheTest : public ::testing::Test {
protected:
    std::unique_ptr<DiskCache> make_cache(std::uint64_t size = 1 << 30, int most_waiting = 32) {
        return DiskCache::create({directory(), size, "store/bucket", most_waiting}, clock, timer).value();
    }
    [[nodiscard]] std::string directory() const { return (temporary.path() / "cache").string(); }

    static ObjectInfo object(const std::string& key) { return object(key, '"' + key + '"'); }
    static ObjectInfo object(const std::string& key, const std::string& etag) {
        ObjectInfo info;
        info.key = key;
        info.etag = etag;
        info.size = 100;
        info.metadata[kWriteIdMetadata] = "id of " + etag;
        return info;
    }
    static Slice frame_of(char fill, std::size_t size = kFrameSize) {
        auto text = std::make_shared<std::string>(size, fill);
        return Slice{text, as_bytes(*text)};
    }
    static Payload payload_of(Slice slice) {
        Payload payload;
        payload.append(std::move(slice));
        return payload;
    }
    // Whole frames.
    static std::shared_ptr<KeptFile> keep(DiskCache& cache, const std::string& key, int frames) {
        auto file = cache.file(object(key), false, static_cast<std::uint64_t>(frames) * kFrameSize);
        for (int frame = 0; frame < frames; ++frame) {
            file->keep(static_cast<std::uint64_t>(frame), frame_of('x'));
        }
        return file;
    }
    static bool has(KeptFile& file, std::uint64_t frame, char fill, std::size_t size = kFrameSize) {
        std::string bytes(size, '\0');
        std::promise<bool> answered;
        file.read(frame, std::as_writable_bytes(std::span(bytes)),
                  [&](bool is_there) { answered.set_value(is_there); });
        return answered.get_future().get() && bytes == std::string(size, fill);
    }
    static std::optional<std::uint64_t> whole_size(DiskCache& cache, const ObjectInfo& object, bool is_encoded) {
        std::promise<std::optional<std::uint64_t>> answered;
        cache.whole_size(object, is_encoded, [&](std::optional<std::uint64_t> size) { answered.set_value(size); });
        return answered.get_future().get();
    }
    [[nodiscard]] std::vector<std::filesystem::path> files() const {
        std::vector<std::filesystem::path> paths;
        for (const auto& entry : std::filesystem::directory_iterator(directory())) {
            paths.push_back(entry.path());
        }
        return paths;
    }
    void flip_a_bit(const std::string& ending, std::streamoff offset) const {
        for (const auto& path : files()) {
            if (path.extension() == ending) {
                std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
                file.seekg(offset);
                const auto byte = static_cast<char>(file.get() ^ 1);
                file.seekp(offset);
                file.put(byte);
            }
        }
    }

    TemporaryDirectory temporary;
    ManualClock clock;
    HandTimer timer;
};

}  // namespace ckptfs
