// SPDX-License-Identifier: Apache-2.0
// KernelCache on a thread of its own: telling the kernel to forget takes inode locks that a waiting request may hold,
// so it must never happen on a thread that answers requests.
//
// Ownership: the sink outlives the time between connect() and disconnect().
// Threads: all functions may be called from any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "fs/kernel_cache.h"

namespace ckptfs {

class KernelNotifier final : public KernelCache {
public:
    // Does the work; called on the notifier's thread only, and may block.
    class Sink {
    public:
        virtual ~Sink() = default;
        virtual void invalidate_entry(std::uint64_t parent, const std::string& name) = 0;
        virtual void invalidate_inode(std::uint64_t node) = 0;
    };

    // Notices beyond this are dropped, the oldest first: they only shorten the time until the kernel asks again.
    static constexpr std::size_t kMaxQueued = 4096;

    KernelNotifier();
    ~KernelNotifier() override;
    KernelNotifier(const KernelNotifier&) = delete;
    KernelNotifier& operator=(const KernelNotifier&) = delete;

    // Notices given before wait for this.
    void connect(Sink& sink);
    // After it returns, the sink is not used any more and notices are dropped.
    void disconnect();

    void invalidate_entry(std::uint64_t parent, std::string name) override;
    void invalidate_inode(std::uint64_t node) override;

private:
    struct Notice {
        std::uint64_t node = 0;
        // Empty: the inode itself.
        std::string name;
    };

    void enqueue(Notice notice);
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by mutex_.
    std::deque<Notice> queue_;
    Sink* sink_ = nullptr;
    bool working_ = false;
    bool closed_ = false;
    bool stop_ = false;

    std::thread thread_;
};

}  // namespace ckptfs
