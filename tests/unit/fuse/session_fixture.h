// SPDX-License-Identifier: Apache-2.0
// A session over a filesystem in memory, with eight buffers and a kernel that the test plays.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "fuse/session.h"
#include "support/eventually.h"
#include "support/heap_buffer_pool.h"
#include "support/inline_executor.h"
#include "support/memory_file_system.h"
#include "support/temporary_directory.h"
#include "unit/fuse/fake_kernel.h"

namespace ckptfs {

class FakeProcesses final : public ProcessInspector {
public:
    void kill(pid_t thread) {
        const std::lock_guard lock(mutex_);
        dying_.insert(thread);
    }
    [[nodiscard]] int asked() const { return asked_; }

    [[nodiscard]] std::optional<pid_t> thread_group(pid_t thread) const override { return thread; }
    [[nodiscard]] std::optional<int> writable_descriptors(pid_t /*process*/, std::uint64_t /*inode*/,
                                                          int /*access*/) const override {
        return 0;
    }
    [[nodiscard]] bool written_by_others(std::uint64_t /*inode*/, pid_t /*except*/) const override { return false; }
    [[nodiscard]] bool handed_down(std::uint64_t /*inode*/, pid_t /*process*/) const override { return false; }
    // As if a fault had killed it: the kernel interrupts nothing.
    void crash(pid_t thread) {
        const std::lock_guard lock(mutex_);
        crashed_.insert(thread);
    }
    [[nodiscard]] ExitState exit_state(pid_t thread) const override {
        const std::lock_guard lock(mutex_);
        return crashed_.contains(thread) ? ExitState::kKilledBySignal : ExitState::kRunning;
    }
    [[nodiscard]] bool is_being_killed(pid_t) const override { return false; }
    [[nodiscard]] bool is_locked(std::uint64_t, std::optional<pid_t>) const override { return false; }
    [[nodiscard]] bool makes_anew(pid_t, std::string_view) const override { return false; }
    [[nodiscard]] bool is_in_background(pid_t) const override { return false; }
    [[nodiscard]] bool is_dying(pid_t thread) const override {
        ++asked_;
        const std::lock_guard lock(mutex_);
        return dying_.contains(thread);
    }

private:
    mutable std::atomic<int> asked_{0};
    mutable std::mutex mutex_;
    std::set<pid_t> dying_;
    std::set<pid_t> crashed_;
};

class FixedClock final : public Clock {
public:
    [[nodiscard]] SteadyTime now() const override { return {}; }
    [[nodiscard]] WallTime wall_now() const override { return WallTime(std::chrono::seconds(1'700'000'000)); }
};

class SessionTest : public ::testing::Test {
protected:
    SessionTest() : session_(Session::create(kernel_.connection()).value()) {}

    void serve(int workers) {
        session_->serve({fs_, pool_, processes_, clock_, disk_, staging_dir_, passes_through_}, workers,
                        {[this] { ready_ = true; }, [this] { ended_ = true; }});
        if (init_) {
            kernel_.init();
        }
    }

    // A request that waits in the filesystem.
    std::uint64_t send_held(const char* operation, std::uint32_t opcode, std::uint64_t node, std::string_view body) {
        fs_.hold(operation);
        const std::uint64_t unique = kernel_.send(opcode, node, body);
        EXPECT_TRUE(testing::eventually([this] { return fs_.held() == 1; }));
        return unique;
    }

    void expect_error(int error, std::uint64_t unique) {
        const auto answer = kernel_.receive();
        ASSERT_TRUE(answer);
        EXPECT_EQ(answer->unique, unique);
        EXPECT_EQ(answer->error, error);
    }

    bool init_ = true;
    bool passes_through_ = false;
    std::atomic<bool> ready_{false};
    std::atomic<bool> ended_{false};
    FakeKernel kernel_;
    fs::MemoryFileSystem fs_{{}};
    HeapBufferPool pool_{8};
    FakeProcesses processes_;
    FixedClock clock_;
    testing::InlineExecutor disk_;
    testing::TemporaryDirectory directory_;
    std::string staging_dir_ = directory_.path();
    std::unique_ptr<Session> session_;
};

}  // namespace ckptfs
