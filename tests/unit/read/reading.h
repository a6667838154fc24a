// SPDX-License-Identifier: Apache-2.0
// What the tests of the reading room share: a store that remembers which ranges were asked for, and an environment
// around it.
#pragma once

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

#include "ckptfs/codec.h"
#include "read/block_cache.h"
#include "read/file_reader.h"
#include "support/fake_store.h"

namespace ckptfs::testing {

class RecordingStore : public FakeStore {
public:
    void get(GetRequest request, StoreDone<GetResponse> done) override {
        {
            std::lock_guard lock(mutex_);
            if (request.range) {
                ranges_.push_back(*request.range);
            }
        }
        if (refuse_suffix_ranges && request.range && request.range->suffix) {
            done(failure(store_error(EINVAL, "InvalidRange", 416)));
            return;
        }
        FakeStore::get(std::move(request), std::move(done));
    }
    [[nodiscard]] std::vector<ByteRange> ranges() const {
        std::lock_guard lock(mutex_);
        return ranges_;
    }
    void forget_ranges() {
        std::lock_guard lock(mutex_);
        ranges_.clear();
    }

    bool refuse_suffix_ranges = false;

private:
    mutable std::mutex mutex_;
    std::vector<ByteRange> ranges_;
};

class InlineExecutor : public Executor {
public:
    void post(std::function<void()> task) override { task(); }
};

class ManualClock : public Clock {
public:
    [[nodiscard]] SteadyTime now() const override { return SteadyTime(std::chrono::nanoseconds(nanoseconds_.load())); }
    [[nodiscard]] WallTime wall_now() const override { return WallTime{}; }
    void advance(std::chrono::nanoseconds by) { nanoseconds_ += by.count(); }

private:
    std::atomic<std::int64_t> nanoseconds_{1'000'000'000};
};

class PlainLayout : public FrameLayout {
public:
    explicit PlainLayout(std::uint64_t size) : size_(size) {}
    [[nodiscard]] std::uint64_t size() const override { return size_; }
    [[nodiscard]] Frame frame_at(std::uint64_t offset) const override {
        Frame frame;
        frame.index = offset / kFrameSize;
        frame.offset = frame.index * kFrameSize;
        frame.size = std::min<std::uint64_t>(kFrameSize, size_ - frame.offset);
        frame.stored_offset = frame.offset;
        frame.stored_size = frame.size;
        return frame;
    }
    [[nodiscard]] bool identity() const override { return true; }
    Status decode(const Frame&, const Payload& stored, MutableByteSpan target) const override {
        stored.copy_to(0, target);
        return {};
    }

private:
    std::uint64_t size_;
};

class PlainCodec : public Codec {
public:
    [[nodiscard]] std::shared_ptr<const FrameEncoder> encoder(const std::string&) const override { return nullptr; }
    Result<std::shared_ptr<const FrameLayout>> layout(const ObjectInfo& object, const Payload&) const override {
        return std::make_shared<const PlainLayout>(object.size);
    }
    [[nodiscard]] bool size_is_known(const ObjectInfo&) const override { return true; }
};

// As many buffers as a test allows, first come, first served.
class SmallPool : public BufferPool {
public:
    explicit SmallPool(std::size_t buffers) : total_(buffers) {}
    ~SmallPool() override {
        for (std::byte* data : free_) {
            delete[] data;
        }
    }

    std::optional<Buffer> try_take(MemoryUse use) override {
        std::lock_guard lock(mutex_);
        if (in_use_ == total_ || !waiting_.empty()) {
            return std::nullopt;
        }
        return take_locked(use);
    }
    void take(MemoryUse use, Ready ready) override {
        std::optional<Buffer> buffer = try_take(use);
        if (!buffer) {
            {
                std::lock_guard lock(mutex_);
                waiting_.emplace_back(use, std::move(ready));
            }
            for (bool more = true; more;) {
                serve();
                more = usage().waiting[static_cast<std::size_t>(use)] > 0;
                for (auto& listener : listeners_) {
                    more = more && listener(use);
                }
            }
            return;
        }
        ready(std::move(*buffer));
    }
    void recharge(Buffer buffer, MemoryUse, Ready ready) override { ready(std::move(buffer)); }
    void add_pressure_listener(std::function<bool(MemoryUse)> relieve) override {
        listeners_.push_back(std::move(relieve));
    }
    [[nodiscard]] PoolUsage usage() const override {
        std::lock_guard lock(mutex_);
        PoolUsage usage;
        usage.total_buffers = total_;
        usage.free_buffers = total_ - in_use_;
        usage.peak_in_use = peak_;
        for (const auto& waiting : waiting_) {
            ++usage.waiting[static_cast<std::size_t>(waiting.first)];
        }
        return usage;
    }

protected:
    void put_back(std::byte* data, MemoryUse) override {
        {
            std::lock_guard lock(mutex_);
            free_.push_back(data);
            --in_use_;
        }
        serve();
    }

private:
    Buffer take_locked(MemoryUse use) {
        if (free_.empty()) {
            free_.push_back(new std::byte[kBufferSize]);
        }
        std::byte* data = free_.back();
        free_.pop_back();
        peak_ = std::max(peak_, ++in_use_);
        return Buffer(this, data, use);
    }
    void serve() {
        for (;;) {
            std::pair<MemoryUse, Ready> next;
            Buffer buffer;
            {
                std::lock_guard lock(mutex_);
                if (waiting_.empty() || in_use_ == total_) {
                    return;
                }
                next = std::move(waiting_.front());
                waiting_.pop_front();
                buffer = take_locked(next.first);
            }
            next.second(std::move(buffer));
        }
    }

    const std::size_t total_;
    mutable std::mutex mutex_;
    std::size_t in_use_ = 0;
    std::size_t peak_ = 0;
    std::vector<std::byte*> free_;
    std::deque<std::pair<MemoryUse, Ready>> waiting_;
    std::vector<std::function<bool(MemoryUse)>> listeners_;
};

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
    explicit Reading(std::size_t buffers = 300, std::size_t max_blocks = BlockCache::kDefaultMaxBlocks)
        : pool(buffers), cache(pool, clock, max_blocks) {}

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

    SmallPool pool;
    InlineExecutor executor;
    ManualClock clock;
    PlainCodec codec;
    BlockCache cache;
    // After the cache: requests that are still under way when it is destroyed answer into the cache.
    RecordingStore store;
    ReadEnvironment environment{store, pool, executor, clock, codec, cache, {}};
};

}  // namespace ckptfs::testing
