// SPDX-License-Identifier: Apache-2.0
// KernelCache on threads of its own: telling the kernel to forget takes inode locks that a waiting request may hold, so
// it must never happen on a thread that answers requests.
//
// A notice for an inode whose page is locked waits until that page has been read, which on a store that hangs may take
// as long as --retry-for. Others overtake it on another thread; those for the same inode keep their order.
//
// Ownership: the sink outlives the time between connect() and disconnect().
// Threads: all functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "fs/kernel_cache.h"
#include "fuse/init_negotiation.h"

namespace ckptfs {

class KernelNotifier final : public fs::KernelCache {
public:
    // Does the work; called on the notifier's threads only, and may block.
    class Sink {
    public:
        virtual ~Sink() = default;
        virtual void invalidate_entry(std::uint64_t parent, const std::string& name) = 0;
        // Drops the attributes, and the pages from the one that has the byte `from` on.
        virtual void invalidate_inode(std::uint64_t node, std::uint64_t from) = 0;
        virtual void invalidate_attributes(std::uint64_t node) = 0;
    };

    // Beyond this, notices are dropped, those for names first and the oldest of them: they only shorten the time until
    // the kernel asks again.
    static constexpr std::size_t kMaxQueued = 4096;
    // Threads are started as needed. This many inodes with a locked page can be waited for at once.
    static constexpr std::size_t kMaxThreads = 8;

    explicit KernelNotifier(const InitNegotiation& negotiation) : negotiation_(negotiation) {}
    ~KernelNotifier() override;
    KernelNotifier(const KernelNotifier&) = delete;
    KernelNotifier& operator=(const KernelNotifier&) = delete;

    // Notices that were given earlier wait for this.
    void connect(Sink& sink);
    // After it returns, the sink is not used any more and notices are dropped.
    void disconnect();

    using fs::KernelCache::invalidate_inode;
    void invalidate_entry(std::uint64_t parent, std::string name) override;
    void invalidate_inode(std::uint64_t node, InodeNotice notice) override;
    void invalidate_attributes(std::uint64_t node) override;
    [[nodiscard]] bool direct_io_allows_mmap() const override { return negotiation_.direct_io_allows_mmap(); }

private:
    enum class What : std::uint8_t { kEntry, kInode, kAttributes };
    struct Notice {
        What what = What::kInode;
        // The inode; for kEntry, the parent.
        std::uint64_t node = 0;
        std::string name{};
        InodeNotice of_inode{};
    };

    void enqueue(Notice notice);
    // Takes a notice for a node that no thread is working on: the oldest that a reply waits for, or else the oldest.
    std::optional<Notice> next() REQUIRES(mutex_);
    [[nodiscard]] bool is_queued(const Notice& notice) const REQUIRES(mutex_);
    void start_thread_if_needed() REQUIRES(mutex_);
    void run();
    static void deliver(Sink& sink, const Notice& notice);

    const InitNegotiation& negotiation_;
    Mutex mutex_;
    Condition changed_;
    std::deque<Notice> queue_ GUARDED_BY(mutex_);
    std::unordered_set<std::uint64_t> under_way_ GUARDED_BY(mutex_);
    Sink* sink_ GUARDED_BY(mutex_) = nullptr;
    bool closed_ GUARDED_BY(mutex_) = false;
    bool stop_ GUARDED_BY(mutex_) = false;
    std::vector<std::thread> threads_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
