// SPDX-License-Identifier: Apache-2.0
// What the tests of the reading room share: a store that remembers which ranges were asked for, and an environment
// around it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_pool.h"
#include "ckptfs/codec.h"
#include "codec/plain.h"
#include "read/block_cache.h"
#include "read/file_reader.h"
#include "support/eventually.h"
#include "support/fake_store.h"
#include "support/inline_executor.h"
#include "support/manual_clock.h"

namespace ckptfs::testing {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

// No byte is asked for twice, apart from the tail that came with the first request.
inline void expect_disjoint(std::vector<ByteRange> ranges) {
    std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
    std::uint64_t end = 0;
    for (const ByteRange& range : ranges) {
        if (range.suffix) {
            continue;
        }
        EXPECT_GE(range.offset, end);
        end = range.offset + range.length;
    }
}

class WatchedStore : public FakeStore {
public:
    ~WatchedStore() override { stop(); }

    void get(GetRequest request, StoreDone<GetResponse> done) override {
        {
            std::lock_guard lock(mutex_);
            if (request.range) {
                ranges_.push_back(*request.range);
            }
            for_open_ += request.for_open ? 1 : 0;
        }
        if (refuse_suffix_ranges && request.range && request.range->suffix) {
            done(failure(store_error(EINVAL, "InvalidRange", 416)));
            return;
        }
        if (answers_to_spare.fetch_sub(1) <= 0 && answers_to_spoil.fetch_sub(1) > 0) {
            request.on_body = [on_body = std::move(request.on_body), first = true](ByteSpan bytes) mutable {
                std::vector<std::byte> spoilt(bytes.begin(), bytes.end());
                spoilt[0] ^= std::byte{static_cast<unsigned char>(std::exchange(first, false) ? 1 : 0)};
                return on_body(spoilt);
            };
        }
        if (tells_versions_last && request.range && !request.range->suffix) {
            request.on_unidentified();
            FakeStore::get(std::move(request), [done = std::move(done)](const Result<GetResponse>&) {
                done(failure(store_error(ESTALE, "PreconditionFailed", 412)));
            });
            return;
        }
        FakeStore::get(std::move(request), std::move(done));
    }
    [[nodiscard]] std::vector<ByteRange> ranges() const {
        std::lock_guard lock(mutex_);
        return ranges_;
    }
    // Requests that go before those for file data.
    [[nodiscard]] int requests_for_open() const {
        std::lock_guard lock(mutex_);
        return for_open_;
    }
    void forget_ranges() {
        std::lock_guard lock(mutex_);
        ranges_.clear();
    }

    bool refuse_suffix_ranges = false;
    // Brings bytes of another version, and says so when all have come.
    std::atomic<bool> tells_versions_last = false;
    // A bit of the first byte of each of these answers is inverted.
    std::atomic<int> answers_to_spoil{0};
    // Before them.
    std::atomic<int> answers_to_spare{0};

private:
    mutable std::mutex mutex_;
    std::vector<ByteRange> ranges_;
    int for_open_ = 0;
};

class PlainCodec : public Codec {
public:
    [[nodiscard]] std::shared_ptr<const FrameEncoder> encoder(const std::string&) const override { return nullptr; }
    [[nodiscard]] std::shared_ptr<const FrameEncoder> plain_encoder() const override { return nullptr; }
    [[nodiscard]] std::shared_ptr<const FrameEncoder> encoder_like(const ObjectInfo&) const override { return nullptr; }
    Result<std::uint64_t> tail_needed(const ObjectInfo&, const Payload&) const override { return 0; }
    Result<std::shared_ptr<const FrameLayout>> layout(const ObjectInfo& object, const Payload&) const override {
        return make_plain_layout(object);
    }
    [[nodiscard]] std::string format_name(const ObjectInfo&) const override { return "plain"; }
    [[nodiscard]] bool may_be_encoded(std::uint64_t) const override { return false; }
    [[nodiscard]] std::optional<std::uint64_t> described_size(const ObjectInfo& object) const override {
        return object.size;
    }
    Result<std::uint64_t> size_from_tail(const ObjectInfo& object, const Payload&) const override {
        return object.size;
    }
};

// No use has more right to the buffers than another.
inline std::unique_ptr<MemoryPool> equal_pool(std::size_t buffers) {
    MemoryShares shares;
    shares.total = buffers;
    shares.of.fill(MemoryShare{0, buffers});
    return MemoryPool::create(shares, nullptr, nullptr).value();
}

// Random bytes, with their place stamped on every 4 KiB, so that no two pieces are alike.
inline std::string content_of(std::size_t size, std::uint32_t seed = 1) {
    constexpr std::size_t kPage = 4096;
    std::mt19937_64 random(seed);
    std::string page(kPage, '\0');
    for (std::size_t i = 0; i < kPage; i += 8) {
        const std::uint64_t value = random();
        std::memcpy(page.data() + i, &value, 8);
    }
    std::string text;
    text.reserve(size + kPage);
    for (std::uint64_t offset = 0; offset < size; offset += kPage) {
        std::memcpy(page.data() + (offset / kPage * 8) % kPage, &offset, 8);
        text += page;
    }
    text.resize(size);
    return text;
}

// A result that arrives on any thread.
template <class T>
class Awaited {
public:
    [[nodiscard]] std::function<void(Result<T>)> callback() const {
        return [state = state_](Result<T> result) { state->set_value(std::move(result)); };
    }
    [[nodiscard]] bool ready() { return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
    Result<T> get() {
        if (future_.wait_for(std::chrono::seconds(30)) != std::future_status::ready) {
            return failure(ETIMEDOUT, "no answer in thirty seconds");
        }
        return future_.get();
    }

private:
    std::shared_ptr<std::promise<Result<T>>> state_ = std::make_shared<std::promise<Result<T>>>();
    std::future<Result<T>> future_ = state_->get_future();
};

struct Reading {
    explicit Reading(std::size_t buffers = 300, std::size_t max_blocks = BlockCache::Limits().blocks)
        : Reading(equal_pool(buffers), max_blocks) {}
    explicit Reading(std::unique_ptr<MemoryPool> memory, std::size_t max_blocks = BlockCache::Limits().blocks,
                     std::size_t requests_ahead = BlockCache::Limits().requests_ahead, FileCache* files = nullptr)
        : memory_(std::move(memory)), pool(*memory_), cache(pool, clock, {max_blocks, requests_ahead}, files) {
        environment.files = files;
    }
    // What this node keeps is read, and filled.
    explicit Reading(FileCache& files)
        : Reading(equal_pool(300), BlockCache::Limits().blocks, BlockCache::Limits().requests_ahead, &files) {}

    Result<std::shared_ptr<FileReader>> try_open(const std::string& key, const std::string& etag = "",
                                                 bool known_empty = false) {
        Awaited<std::shared_ptr<FileReader>> opened;
        FileReader::open(environment, key, etag, known_empty, opened.callback());
        return opened.get();
    }
    std::shared_ptr<FileReader> open(const std::string& key) { return try_open(key).value(); }

    static Result<std::string> read(FileReader& reader, const std::shared_ptr<ReadStream>& stream, std::uint64_t offset,
                                    std::size_t size) {
        Awaited<Payload> answer;
        reader.read(stream, offset, size, answer.callback());
        return answer.get().map([](const Payload& payload) { return payload.to_string(); });
    }

private:
    std::unique_ptr<MemoryPool> memory_;

public:
    MemoryPool& pool;
    InlineExecutor executor;
    ManualClock clock;
    PlainCodec codec;
    // Answers are still worked on when a reader has what it asked for.
    [[nodiscard]] bool comes_to_rest() const {
        return eventually([this] { return cache.statistics().requests_in_flight == 0; });
    }

    BlockCache cache;
    // After the cache: requests that are still under way when it is destroyed answer into the cache.
    WatchedStore store;
    ReadEnvironment environment{store, pool, executor, clock, codec, cache, {}};
};

}  // namespace ckptfs::testing
