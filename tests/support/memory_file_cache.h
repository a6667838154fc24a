// SPDX-License-Identifier: Apache-2.0
// What a node would keep of the files that are written, in memory, to be compared with them.
// Threads: all functions may be called from any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ckptfs/codec.h"
#include "ckptfs/file_cache.h"

namespace ckptfs::testing {

class MemoryFileCache final : public FileCache {
public:
    // By frame.
    using Frames = std::map<std::uint64_t, std::string>;

    std::shared_ptr<FileBeingKept> begin() override { return std::make_shared<File>(*this); }
    std::shared_ptr<KeptFile> file(const ObjectInfo&, bool, std::uint64_t) override { return nullptr; }
    bool may_have(const std::string&) const override { return false; }
    void whole_size(const ObjectInfo&, bool, Size done) override { done(std::nullopt); }
    void bytes_kept(const ObjectInfo&, Kept done) override { done(0); }
    void drop(const ObjectInfo&, std::function<void(bool)> done) override { done(true); }
    void renamed(const ObjectInfo&, const ObjectInfo&) override {}
    void renamed(std::vector<RenamedObject>) override {}
    void when_written(std::function<void()> done) override { done(); }

    // Of the version with this ETag, as far as its frames are whole.
    [[nodiscard]] Frames frames(const std::string& etag) const {
        const std::lock_guard lock(mutex_);
        const auto found = finished_.find(etag);
        return found == finished_.end() ? Frames() : found->second;
    }

    [[nodiscard]] std::size_t finished() const {
        const std::lock_guard lock(mutex_);
        return finished_.size();
    }

private:
    class File final : public FileBeingKept {
    public:
        explicit File(MemoryFileCache& cache) : cache_(cache) {}
        void add(std::uint64_t frame, Payload bytes) override {
            const std::lock_guard lock(cache_.mutex_);
            frames_[frame] = bytes.to_string();
        }
        void forget(std::uint64_t begin, std::uint64_t end) override {
            const std::lock_guard lock(cache_.mutex_);
            std::erase_if(frames_, [&](const auto& each) {
                const std::uint64_t offset = each.first * kFrameSize;
                return offset < end && offset + kFrameSize > begin;
            });
        }
        void finish(const ObjectInfo& object, bool /*is_encoded*/, std::uint64_t size) override {
            const std::lock_guard lock(cache_.mutex_);
            std::erase_if(frames_, [&](const auto& each) {
                const std::uint64_t offset = each.first * kFrameSize;
                return offset >= size || each.second.size() != std::min<std::uint64_t>(kFrameSize, size - offset);
            });
            cache_.finished_[object.etag] = frames_;
        }

    private:
        MemoryFileCache& cache_;
        Frames frames_;
    };

    mutable std::mutex mutex_;
    std::map<std::string, Frames> finished_;
};

}  // namespace ckptfs::testing
