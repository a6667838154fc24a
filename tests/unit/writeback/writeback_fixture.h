// SPDX-License-Identifier: Apache-2.0
// A bucket in memory behind a store on a local disk, whose process can be killed.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "base/digest.h"
#include "base/executors.h"
#include "base/system_clock.h"
#include "base/timer_thread.h"
#include "support/fake_store.h"
#include "support/heap_buffer_pool.h"
#include "support/hooked_store.h"
#include "support/sync_store.h"
#include "support/temporary_directory.h"
#include "writeback/writeback_store.h"

namespace ckptfs::testing {

// Nothing takes longer than it has to.
class ImpatientTimer final : public Timer {
public:
    explicit ImpatientTimer(const Clock& clock) : timer_(clock) {}
    Id after(Milliseconds /*delay*/, std::function<void()> run) override {
        return timer_.after(Milliseconds(1), std::move(run));
    }
    void cancel(Id id) override { timer_.cancel(id); }

private:
    TimerThread timer_;
};

// What one mount has. Its requests can be cut off from the bucket at any time, as by a kill.
class WritebackMount {
public:
    using ChangeEnvironment = std::function<void(WritebackEnvironment&)>;
    // `pool` outlives the bucket, whose threads may hold a body a little longer than they need it.
    WritebackMount(FakeStore& bucket, BufferPool& pool, const std::string& directory, std::uint64_t limit,
                   std::function<Fate(int)> fate = nullptr, const ChangeEnvironment& change = nullptr)
        : way_(bucket,
               [this, fate = std::move(fate)](int request) {
                   return is_cut_off_ ? Fate::kFails : fate ? fate(request) : Fate::kPasses;
               }),
          store_(open(pool, directory, limit, change)),
          sync_(*store_) {}
    ~WritebackMount() {
        store_->unsent().stop();
        disk_->stop();
    }
    WritebackMount(const WritebackMount&) = delete;
    WritebackMount& operator=(const WritebackMount&) = delete;

    void cut_off() { is_cut_off_ = true; }
    WritebackStore& operator*() { return *store_; }
    SyncStore* operator->() { return &sync_; }
    [[nodiscard]] UnsentChanges& unsent() const { return store_->unsent(); }
    void wait_until_sent() const {
        std::promise<Status> sent;
        std::future<Status> answer = sent.get_future();
        store_->unsent().when_sent([&sent](Status status) { sent.set_value(std::move(status)); });
        ASSERT_EQ(answer.wait_for(std::chrono::minutes(1)), std::future_status::ready);
        ASSERT_TRUE(answer.get());
    }

    Result<PutResponse> put(const std::string& key, const std::string& content, Metadata metadata = {}) {
        PutRequest request;
        request.key = key;
        request.body = Payload::from_string(content);
        request.metadata = std::move(metadata);
        return sync_.put(std::move(request));
    }
    Result<PutResponse> copy(const std::string& source, const std::string& key) {
        CopyRequest request;
        request.source_key = source;
        request.key = key;
        return sync_.copy(std::move(request));
    }
    Result<std::string> content(const std::string& key, std::optional<ByteRange> range = {},
                                const std::string& if_match = "") {
        // A request whose answer is lost goes on.
        const auto content = std::make_shared<std::string>();
        GetRequest request;
        request.key = key;
        request.range = range;
        request.if_match = if_match;
        request.on_body = [content](ByteSpan bytes) {
            *content += as_text(bytes);
            return true;
        };
        return sync_.get(std::move(request)).map([content](const GetResponse&) { return *content; });
    }

private:
    std::unique_ptr<WritebackStore> open(BufferPool& pool, const std::string& directory, std::uint64_t limit,
                                         const ChangeEnvironment& change) {
        WritebackEnvironment environment{
            way_,   pool,      timer_, clock_,
            *disk_, directory, limit,  [](const std::string& key) { return key.ends_with(".metadata"); }};
        if (change) {
            change(environment);
        }
        return WritebackStore::open(environment).value();
    }

    std::atomic<bool> is_cut_off_ = false;
    SystemClock clock_;
    ImpatientTimer timer_{clock_};
    std::unique_ptr<Executor> disk_ = make_blocking_executor(4);
    HookedStore way_;
    std::unique_ptr<WritebackStore> store_;
    SyncStore sync_;
};

// Of the log, by its files.
inline std::map<std::string, std::uintmax_t> log_sizes(const std::string& directory) {
    std::map<std::string, std::uintmax_t> sizes;
    for (const auto& each : std::filesystem::directory_iterator(directory)) {
        std::error_code gone;
        if (each.path().extension() == ".log") {
            sizes.emplace(each.path().string(), each.file_size(gone));
        }
    }
    return sizes;
}

// As a kill finds it. Bodies first: what the log names then was there before. A log that changes meanwhile is copied
// again: its segments belong together.
inline void copy_disk(const std::string& from, const std::string& to) {
    std::filesystem::create_directory(to);
    const std::map<std::string, std::uintmax_t> before = log_sizes(from);
    for (const char* const ending : {".body", ".log"}) {
        std::map<int, std::filesystem::path> oldest_first;
        for (const auto& each : std::filesystem::directory_iterator(from)) {
            if (each.path().extension() == ending) {
                oldest_first.emplace(std::stoi(each.path().stem().string()), each.path());
            }
        }
        for (const auto& [number, path] : oldest_first) {
            std::error_code gone;
            std::filesystem::copy(path, to, gone);
        }
    }
    // A copy of it would be that of another disk.
    std::error_code none;
    std::filesystem::create_hard_link(from + "/id", to + "/id", none);
    if (log_sizes(from) != before) {
        std::filesystem::remove_all(to);
        copy_disk(from, to);
    }
}

class WritebackTest : public ::testing::Test {
protected:
    // Nothing is sent before start().
    std::unique_ptr<WritebackMount> mount(std::uint64_t limit = std::uint64_t{1} << 40) {
        return std::make_unique<WritebackMount>(bucket, pool, directory(), limit, nullptr, change_environment);
    }
    std::unique_ptr<WritebackMount> started(std::uint64_t limit = std::uint64_t{1} << 40) {
        auto made = mount(limit);
        made->unsent().start();
        return made;
    }
    [[nodiscard]] std::string directory() const { return (temporary.path() / std::to_string(life)).string(); }
    // The next mount finds what the disk has by now. `killed` may not be used any more.
    void kill(std::unique_ptr<WritebackMount> killed) {
        killed->cut_off();
        const std::string before = directory();
        ++life;
        copy_disk(before, directory());
        killed.reset();
    }
    void SetUp() override { std::filesystem::create_directory(directory()); }

    const TemporaryDirectory temporary;
    int life = 0;
    // Of mounts made later.
    WritebackMount::ChangeEnvironment change_environment;
    HeapBufferPool pool{16};
    FakeStore bucket{5};
};

}  // namespace ckptfs::testing
