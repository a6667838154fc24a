// SPDX-License-Identifier: Apache-2.0
// A filesystem on a fake store, with the real writer and reader, processes made up by the test, and time that stands
// still unless moved.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <latch>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/executors.h"
#include "base/memory_pool.h"
#include "codec/codecs.h"
#include "fs/file_system.h"
#include "read/block_cache.h"
#include "support/eventually.h"
#include "support/fake_store.h"
#include "support/hand_timer.h"

namespace ckptfs::fs {

using namespace testing;

// Long enough for what must not happen, on a machine that is not quite stuck.
inline constexpr std::chrono::milliseconds kForAWhile{200};

class StandingClock final : public Clock {
public:
    [[nodiscard]] SteadyTime now() const override { return SteadyTime(std::chrono::nanoseconds(nanoseconds_.load())); }
    [[nodiscard]] WallTime wall_now() const override { return WallTime(std::chrono::seconds(wall_seconds_.load())); }
    // As after hibernation.
    void advance_wall(Milliseconds by) { wall_seconds_ += std::chrono::ceil<std::chrono::seconds>(by).count(); }
    void advance(Milliseconds by) { nanoseconds_ += std::chrono::nanoseconds(by).count(); }

private:
    std::atomic<std::int64_t> wall_seconds_ = 1'700'000'000;
    std::atomic<std::int64_t> nanoseconds_ = std::chrono::nanoseconds(std::chrono::hours(1)).count();
};

// Every thread id is its own process; what is not told is one that runs and has no other descriptors.
class ToldProcesses final : public ProcessInspector {
public:
    [[nodiscard]] std::optional<pid_t> thread_group(pid_t thread) const override {
        return thread == 0 ? std::nullopt : std::optional(thread);
    }
    [[nodiscard]] std::optional<int> writable_descriptors(pid_t process, std::uint64_t, int access) const override {
        if (while_counting) {
            while_counting();
        }
        if (access != kAnyAccess && opened_with != kAnyAccess && access != opened_with) {
            return 0;
        }
        if (process == hidden) {
            return std::nullopt;
        }
        const auto found = descriptors.find(process);
        return found == descriptors.end() ? 0 : found->second;
    }
    [[nodiscard]] bool written_by_others(std::uint64_t, pid_t) const override {
        if (while_looking) {
            while_looking();
        }
        return others_write;
    }
    [[nodiscard]] bool handed_down(std::uint64_t, pid_t) const override { return handed_to_a_child; }
    [[nodiscard]] ExitState exit_state(pid_t thread) const override {
        if (thread == 0) {
            return ExitState::kUnknown;
        }
        return thread == killed ? ExitState::kKilledBySignal : ExitState::kRunning;
    }
    [[nodiscard]] bool is_being_killed(pid_t process) const override {
        // Counted when it is known: a test changes it then.
        const bool is_dying = being_killed == process;
        ++times_asked_for_deaths;
        return is_dying;
    }
    [[nodiscard]] bool is_locked(std::uint64_t, std::optional<pid_t> process) const override {
        const bool is_held = locks_by && process.value_or(*locks_by) == *locks_by;
        if (while_reading_locks) {
            std::exchange(while_reading_locks, nullptr)();
        }
        return is_held;
    }
    [[nodiscard]] bool makes_anew(pid_t, std::string_view) const override { return make_anew; }
    [[nodiscard]] bool is_in_background(pid_t) const override { return false; }
    [[nodiscard]] bool is_dying(pid_t) const override { return false; }

    // Who looks a name up is about to open it with O_CREAT and O_TRUNC.
    bool make_anew = false;
    std::map<pid_t, int> descriptors;
    // All of them.
    int opened_with = kAnyAccess;
    // Of which /proc does not show the descriptors.
    std::optional<pid_t> hidden;
    pid_t killed = 0;
    // And has not closed what it has open yet.
    std::atomic<pid_t> being_killed = -1;
    mutable std::atomic<int> times_asked_for_deaths = 0;
    bool others_write = false;
    bool handed_to_a_child = false;
    // Who has a lock on every file.
    std::optional<pid_t> locks_by;
    // Called once, before it is told who has one.
    mutable std::function<void()> while_reading_locks;
    // Called before it is told who else has a file open.
    std::function<void()> while_looking;
    // Called before it is told which descriptors a process has.
    std::function<void()> while_counting;
};

class NotedKernelCache final : public KernelCache {
public:
    void invalidate_entry(std::uint64_t, std::string name) override { entries.push_back(std::move(name)); }
    using KernelCache::invalidate_inode;
    void invalidate_inode(std::uint64_t node, InodeNotice notice) override {
        inodes.push_back(node);
        last_from = notice.from;
        waiting_.push_back(std::move(notice));
        if (!is_held) {
            deliver();
        }
    }
    // The first that waits.
    void deliver() {
        if (before_done) {
            before_done();
        }
        const InodeNotice notice = std::move(waiting_.front());
        waiting_.pop_front();
        if (notice.is_due && !notice.is_due()) {
            inodes.pop_back();
        } else if (notice.done) {
            notice.done();
        }
    }
    void invalidate_attributes(std::uint64_t node) override { attributes.push_back(node); }
    [[nodiscard]] bool direct_io_allows_mmap() const override { return maps_direct_io; }

    std::vector<std::string> entries;
    std::vector<std::uint64_t> inodes;
    // The first byte that the last of these is about.
    std::uint64_t last_from = 0;
    std::vector<std::uint64_t> attributes;
    // Called when the pages of an inode are gone and the filesystem has not heard of it.
    std::function<void()> before_done;
    // The kernel is 6.6 or later.
    bool maps_direct_io = true;
    // The kernel is slow: inodes wait for deliver().
    bool is_held = false;

private:
    std::deque<InodeNotice> waiting_;
};

class FileSystemTest : public ::testing::Test {
protected:
    // A task that has answered may still hold buffers of the pool.
    ~FileSystemTest() override {
        // Their tasks may give work to each other, which a pool that has stopped does at once.
        for (const auto* const pool_of_threads : {&blocking, &staging, &executor}) {
            if (*pool_of_threads != nullptr) {
                (*pool_of_threads)->stop();
            }
        }
    }
    static constexpr pid_t kProcess = 100;

    // `table_memory`: the budget of which seek tables may take their share.
    explicit FileSystemTest(std::uint64_t table_memory = std::numeric_limits<std::uint64_t>::max())
        : codec(std::move(*make_codec({"none", {}}, table_memory))), fs(make_mount("here")) {}

    // What has been answered may still go on on a thread, and give others work.
    void wait_for_threads() {
        for (int round = 0; round < 4; ++round) {
            for (const auto& [pool_of_threads, threads] :
                 {std::pair{executor.get(), processor_count()}, {staging.get(), 1}, {blocking.get(), 4}}) {
                auto all = std::make_shared<std::latch>(threads + 1);
                for (int thread = 0; thread < threads; ++thread) {
                    pool_of_threads->post([all] { all->arrive_and_wait(); });
                }
                all->arrive_and_wait();
            }
        }
    }
    // Ends the mount at a moment when no thread is in it.
    void end_mount() {
        wait_for_threads();
        fs.reset();
    }
    std::unique_ptr<FileSystem> make_mount(const std::string& host, FailureNotes notes = {}) {
        return make_mount(host, store, std::move(notes));
    }
    std::unique_ptr<FileSystem> make_mount(const std::string& host, ObjectStore& seen, FailureNotes notes = {}) {
        return FileSystem::create(environment(host, seen, std::move(notes)));
    }
    FileSystemEnvironment environment(const std::string& host, ObjectStore& seen, FailureNotes notes = {}) {
        NameConfig names;
        names.metadata_ttl = Milliseconds(1000);
        return FileSystemEnvironment{seen,
                                     *blocking,
                                     clock,
                                     timer,
                                     processes,
                                     kernel_cache,
                                     *codec,
                                     write_environment,
                                     read_environment,
                                     names,
                                     "p/",
                                     host,
                                     std::move(notes)};
    }
    // What is called from now on is called on another mount of the same prefix; the next time, on the first one again.
    void switch_mounts() {
        if (other_mount == nullptr) {
            other_mount = make_mount("there");
        }
        fs.swap(other_mount);
    }

    template <class T, class Start>
    static Result<T> answer(Start start) {
        auto promise = std::make_shared<std::promise<Result<T>>>();
        std::future<Result<T>> future = promise->get_future();
        start(Reply<T>([promise](Result<T> result) { promise->set_value(std::move(result)); }));
        if (future.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
            ADD_FAILURE() << "no answer";
            return failure(ETIMEDOUT, "no answer");
        }
        return future.get();
    }

    static int errno_of(const auto& result) { return result ? 0 : result.error().errno_value; }

    Result<Entry> lookup(const std::string& name, NodeId parent = kRootNode) {
        return answer<Entry>([&](auto reply) { fs->lookup(parent, name, Caller{kProcess, 0, 0}, reply); });
    }
    Result<CreatedFile> create(const std::string& name, int flags = O_WRONLY, NodeId parent = kRootNode) {
        return answer<CreatedFile>([&](auto reply) {
            fs->create_file(parent, name, flags | O_CREAT, Caller{kProcess, 0, 0}, reply);
        });
    }
    Result<OpenedFile> open(NodeId node, int flags) {
        return answer<OpenedFile>([&](auto reply) { fs->open(node, flags, Caller{kProcess, 0, 0}, reply); });
    }
    // Where another keeps the file open: after the waits for its release.
    Result<OpenedFile> open_beside(NodeId node, int flags) {
        return answer<OpenedFile>([&](auto reply) {
            fs->open(node, flags, Caller{kProcess, 0, 0}, reply);
            for (int delay = 1; delay <= 64; delay *= 2) {
                timer.run(Milliseconds(delay));
            }
        });
    }
    Status write(HandleId handle, std::uint64_t offset, const std::string& text, bool is_page_cache = false,
                 bool in_place = false) {
        return answer<void>([&](auto reply) {
            Buffer buffer = *pool->try_take(MemoryUse::kReceive);
            std::memcpy(buffer.data(), text.data(), text.size());
            const ByteSpan data(buffer.data(), text.size());
            Caller caller{kProcess, 0, 0, is_page_cache};
            caller.in_place = in_place;
            fs->write(handle, offset, WriteData{std::move(buffer), data}, std::move(caller), reply);
        });
    }
    Status flush(HandleId handle, pid_t process = kProcess) {
        return answer<void>([&](auto reply) { fs->flush(handle, Caller{process, 0, 0}, reply); });
    }
    Status fsync(HandleId handle) {
        return answer<void>([&](auto reply) { fs->fsync(handle, reply); });
    }
    Status release(HandleId handle) {
        return answer<void>([&](auto reply) { fs->release(handle, reply); });
    }
    Status close(HandleId handle) {
        Status flushed = flush(handle);
        static_cast<void>(release(handle));
        return flushed;
    }
    Result<std::string> read(HandleId handle, std::uint64_t offset = 0, std::size_t size = 1 << 20) {
        return answer<Payload>([&](auto reply) { fs->read(handle, offset, size, reply); })
            .map([](const Payload& payload) { return payload.to_string(); });
    }
    Status rename(const std::string& from, const std::string& to, unsigned flags = 0, NodeId parent = kRootNode) {
        return answer<void>([&](auto reply) {
            fs->rename(parent, from, parent, to, flags, Caller{kProcess, 0, 0}, reply);
        });
    }
    Status unlink(const std::string& name, NodeId parent = kRootNode) {
        return answer<void>([&](auto reply) { fs->unlink(parent, name, reply); });
    }
    Result<Entry> mkdir(const std::string& name, NodeId parent = kRootNode) {
        return answer<Entry>([&](auto reply) { fs->mkdir(parent, name, reply); });
    }
    Status rmdir(const std::string& name, NodeId parent = kRootNode) {
        return answer<void>([&](auto reply) { fs->rmdir(parent, name, reply); });
    }
    Result<Attributes> getattr(NodeId node, pid_t thread = 0) {
        return answer<Attributes>([&](auto reply) { fs->getattr(node, std::nullopt, thread, reply); });
    }
    std::vector<std::string> list(NodeId node = kRootNode) {
        const HandleId handle = *answer<HandleId>([&](auto reply) { fs->open_directory(node, reply); });
        std::vector<std::string> names;
        for (std::uint64_t offset = 0;;) {
            const auto entries = answer<std::vector<DirectoryEntry>>(
                [&](auto reply) { fs->read_directory(handle, offset, 7, false, reply); });
            if (!entries || entries->empty()) {
                break;
            }
            for (const DirectoryEntry& entry : *entries) {
                names.push_back(entry.name);
                offset = entry.next_offset;
            }
        }
        fs->release_directory(handle);
        return names;
    }
    // Makes a whole file through the mount.
    NodeId save(const std::string& name, const std::string& text) {
        const Result<CreatedFile> file = create(name);
        EXPECT_TRUE(file);
        EXPECT_TRUE(write(file->opened.handle, 0, text));
        EXPECT_TRUE(close(file->opened.handle));
        return file->entry.node;
    }

    // Small shares: 128 MiB as `--max-memory 128M` would.
    std::unique_ptr<Executor> executor = make_executor();
    std::unique_ptr<Executor> staging = make_blocking_executor(1);
    std::unique_ptr<MemoryPool> pool =
        std::move(*MemoryPool::create(memory_shares(std::uint64_t{128} << 20, 8), executor.get(), nullptr));
    FakeStore store;
    StandingClock clock;
    HandTimer timer;
    ToldProcesses processes;
    NotedKernelCache kernel_cache;
    std::unique_ptr<Codec> codec;
    BlockCache cache{*pool, clock};
    WriteEnvironment write_environment{store, *pool, *executor, *staging, clock, *codec, WriteConfig{}};
    ReadEnvironment read_environment{store, *pool, *executor, clock, *codec, cache, ReadConfig{}};
    std::unique_ptr<Executor> blocking = make_blocking_executor(4);
    std::unique_ptr<FileSystem> fs;
    std::unique_ptr<FileSystem> other_mount;
};

}  // namespace ckptfs::fs
