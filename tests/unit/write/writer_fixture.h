// SPDX-License-Identifier: Apache-2.0
// A writer with everything it needs: a store in memory, a memory budget, threads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/executors.h"
#include "base/memory_pool.h"
#include "base/memory_shares.h"
#include "base/system_clock.h"
#include "base/timer_thread.h"
#include "codec/codecs.h"
#include "support/eventually.h"
#include "support/fake_store.h"
#include "support/pattern.h"
#include "write/file_writer.h"

namespace ckptfs::testing {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// The answer of an asynchronous call, waited for with a deadline.
template <class T>
class Answer {
public:
    [[nodiscard]] std::function<void(T)> callback() {
        return [promise = promise_](T value) { promise->set_value(std::move(value)); };
    }
    [[nodiscard]] bool here(std::chrono::milliseconds wait = std::chrono::milliseconds(0)) const {
        return future_.wait_for(wait) == std::future_status::ready;
    }
    T get() {
        if (!here(std::chrono::seconds(30))) {
            return failure(ETIMEDOUT, "no answer within 30 seconds");
        }
        return future_.get();
    }

private:
    std::shared_ptr<std::promise<T>> promise_ = std::make_shared<std::promise<T>>();
    std::shared_future<T> future_ = promise_->get_future().share();
};

// For tests in which how frames are encoded must not hang on how fast it is here.
class StillClock : public Clock {
public:
    [[nodiscard]] SteadyTime now() const override { return SteadyTime{}; }
    [[nodiscard]] WallTime wall_now() const override { return WallTime{}; }
};

struct WriterFixture {
    explicit WriterFixture(std::uint64_t max_memory = 256 * kMiB, WriteConfig config = {},
                           const std::string& compress = "none")
        : codec(std::move(make_codec({compress, {}}).value())),
          pool(
              std::move(MemoryPool::create(memory_shares(max_memory, 2, compress != "none"), nullptr, &timer).value())),
          environment{store, *pool, executor, staging, clock, *codec, std::move(config)} {}

    std::shared_ptr<FileWriter> open(std::optional<CommittedObject> base = std::nullopt, std::string key = "dir/file") {
        return FileWriter::create(environment, std::move(key), std::move(base));
    }

    // As the kernel hands it over: behind a header, in a receive buffer.
    WriteData data(std::string_view text) {
        Answer<Result<std::shared_ptr<Buffer>>> taken;
        pool->take(MemoryUse::kReceive,
                   [done = taken.callback()](Buffer buffer) { done(std::make_shared<Buffer>(std::move(buffer))); });
        WriteData result;
        const auto buffer = taken.get();
        if (!buffer) {
            ADD_FAILURE() << "no receive buffer within 30 seconds";
            return result;
        }
        constexpr std::size_t kHeader = 80;
        std::memcpy((*buffer)->data() + kHeader, text.data(), text.size());
        result.data = ByteSpan((*buffer)->data() + kHeader, text.size());
        result.buffer = std::move(**buffer);
        return result;
    }

    // In pieces of a FUSE request each, waiting for each answer.
    Status write(FileWriter& writer, std::uint64_t offset, std::string_view text,
                 std::size_t piece = BufferPool::kPayloadSize) {
        do {
            const std::string_view part = text.substr(0, piece);
            Answer<Status> answer;
            writer.write(offset, data(part), answer.callback());
            if (Status status = answer.get(); !status) {
                return status;
            }
            offset += part.size();
            text.remove_prefix(part.size());
        } while (!text.empty());
        return {};
    }
    Status append(FileWriter& writer, std::string_view text) {
        Answer<Status> answer;
        writer.append(data(text), answer.callback());
        return answer.get();
    }
    static Status truncate(FileWriter& writer, std::uint64_t size) {
        Answer<Status> answer;
        writer.truncate(size, answer.callback());
        return answer.get();
    }
    static Result<CommittedObject> commit(FileWriter& writer, CommitReason reason = CommitReason::kClose) {
        Answer<Result<CommittedObject>> answer;
        writer.commit(reason, answer.callback());
        return answer.get();
    }
    static Status abort(FileWriter& writer, int errno_value = EIO) {
        Error why;
        why.errno_value = errno_value;
        why.message = "given up";
        Answer<Status> answer;
        writer.abort(why, answer.callback());
        return answer.get();
    }

    // The file that an object of the store holds; "damaged: …" where it cannot be read.
    [[nodiscard]] std::string file(const std::string& key) const { return file(store.info(key), store.content(key)); }
    [[nodiscard]] std::string file(const ObjectInfo& object, const std::string& content) const {
        const Payload stored = Payload::from_string(content);
        const auto layout = codec->layout(object, stored);
        if (!layout) {
            return "damaged: " + layout.error().message;
        }
        std::string bytes((*layout)->size(), '\0');
        for (std::uint64_t offset = 0; offset < bytes.size(); offset += kFrameSize) {
            const Frame frame = (*layout)->frame_at(offset);
            const auto target = std::as_writable_bytes(std::span(bytes)).subspan(frame.offset, frame.size);
            const Payload frame_bytes = stored.subrange(frame.stored_offset, frame.stored_size);
            const auto references = (*layout)->references(frame, frame_bytes);
            if (!references) {
                return "damaged: " + references.error().message;
            }
            std::string referenced;
            for (const FileRange& range : *references) {
                referenced += bytes.substr(range.offset, range.size);
            }
            if (const Status decoded = (*layout)->decode(frame, frame_bytes, Payload::from_string(referenced), target);
                !decoded) {
                return "damaged: " + decoded.error().message;
            }
        }
        return bytes;
    }

    // Threads let go of the last buffers after they have answered.
    [[nodiscard]] bool all_buffers_returned() const {
        return eventually([this] {
            const PoolUsage usage = pool->usage();
            return usage.free_buffers == usage.total_buffers;
        });
    }
    [[nodiscard]] bool no_upload_left() const {
        return eventually([this] { return store.open_uploads() == 0; });
    }
    void break_next(Operation operation, int skip = 0, Error error = store_error(EIO, "InternalError", 500)) {
        Fault fault;
        fault.operation = operation;
        fault.error = std::move(error);
        fault.skip = skip;
        store.inject(std::move(fault));
    }

    std::unique_ptr<Codec> codec;
    SystemClock clock;
    // Of those that wait for memory, as in a mount.
    TimerThread timer{clock};
    std::unique_ptr<BufferPool> pool;
    FakeStore store;
    // Last: its threads use everything above until they are joined.
    static constexpr int kExecutorThreads = 3;
    ThreadPool executor{"test", kExecutorThreads};
    ThreadPool staging{"staging", 2};
    WriteEnvironment environment;
};

}  // namespace ckptfs::testing
