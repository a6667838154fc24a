// SPDX-License-Identifier: Apache-2.0
#include "fuse/kernel_notifier.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "base/thread.h"
#include "ckptfs/log.h"

namespace ckptfs {

KernelNotifier::~KernelNotifier() {
    std::vector<std::thread> threads;
    {
        const MutexLock lock(mutex_);
        stop_ = true;
        threads.swap(threads_);
    }
    changed_.notify_all();
    for (std::thread& thread : threads) {
        thread.join();
    }
}

void KernelNotifier::connect(Sink& sink) {
    {
        const MutexLock lock(mutex_);
        sink_ = &sink;
        start_thread_if_needed();
    }
    changed_.notify_all();
}

void KernelNotifier::disconnect() {
    MutexLock lock(mutex_);
    closed_ = true;
    sink_ = nullptr;
    const std::deque<Notice> dropped = std::exchange(queue_, {});
    changed_.wait(lock, [this]() REQUIRES(mutex_) { return under_way_.empty(); });
    lock.unlock();
}

void KernelNotifier::invalidate_entry(std::uint64_t parent, std::string name) {
    enqueue({What::kEntry, parent, std::move(name), {}});
}

void KernelNotifier::invalidate_inode(std::uint64_t node, InodeNotice notice) {
    enqueue({What::kInode, node, {}, std::move(notice)});
}

void KernelNotifier::invalidate_attributes(std::uint64_t node) {
    enqueue({What::kAttributes, node, {}, {}});
}

void KernelNotifier::enqueue(Notice notice) {
    // What a dropped notice holds is released without the mutex.
    Notice dropped;
    {
        const MutexLock lock(mutex_);
        if (closed_ || is_queued(notice)) {
            return;
        }
        if (queue_.size() == kMaxQueued) {
            // Notices for names go first: the kernel only forgets the names a little later. The end of what a notice
            // holds may need a lock that a caller has whose own notice holds nothing: that notice is dropped itself if
            // all others hold something.
            auto least = std::find_if(queue_.begin(), queue_.end(),
                                      [](const Notice& queued) { return queued.what == What::kEntry; });
            least =
                least != queue_.end() ? least : std::find_if(queue_.begin(), queue_.end(), [](const Notice& queued) {
                    return queued.of_inode.held == nullptr && !queued.of_inode.is_due;
                });
            if (least == queue_.end() && notice.of_inode.held == nullptr && !notice.of_inode.is_due) {
                return;
            }
            least = least != queue_.end() ? least
                                          : std::find_if(queue_.begin(), queue_.end(),
                                                         [](const Notice& queued) { return !queued.of_inode.is_due; });
            least = least == queue_.end() ? queue_.begin() : least;
            dropped = std::move(*least);
            queue_.erase(least);
        }
        queue_.push_back(std::move(notice));
        start_thread_if_needed();
    }
    changed_.notify_all();
}

// Many writes may each give the same notice.
bool KernelNotifier::is_queued(const Notice& notice) const {
    const auto is_plain = [](const Notice& each) {
        const InodeNotice& inode = each.of_inode;
        return each.what == What::kInode && inode.held == nullptr && !inode.is_due && !inode.done;
    };
    return is_plain(notice) && std::any_of(queue_.begin(), queue_.end(), [&](const Notice& queued) {
               return is_plain(queued) && queued.node == notice.node && queued.of_inode.from <= notice.of_inode.from;
           });
}

// Starts one thread more than wait in the kernel.
void KernelNotifier::start_thread_if_needed() {
    if (sink_ != nullptr && !stop_ && !queue_.empty() && threads_.size() == under_way_.size() &&
        threads_.size() < kMaxThreads) {
        try {
            threads_.push_back(start_thread("ckptfs-notify", [this] { run(); }));
        } catch (const std::system_error& error) {
            // Tried again with the next notice; until then those that there are do it.
            log_debug(format("{} threads tell the kernel to drop what it caches: {}", threads_.size(), error.what()));
        }
    }
}

std::optional<KernelNotifier::Notice> KernelNotifier::next() {
    if (sink_ == nullptr) {
        return std::nullopt;
    }
    const auto is_free = [this](const Notice& notice) REQUIRES(mutex_) { return !under_way_.contains(notice.node); };
    // Names may be thousands, and each may wait for its directory.
    auto found = std::find_if(queue_.begin(), queue_.end(), [&](const Notice& notice) REQUIRES(mutex_) {
        return notice.of_inode.held != nullptr && is_free(notice);
    });
    found = found == queue_.end() ? std::find_if(queue_.begin(), queue_.end(), is_free) : found;
    if (found == queue_.end()) {
        return std::nullopt;
    }
    Notice notice = std::move(*found);
    queue_.erase(found);
    return notice;
}

void KernelNotifier::deliver(Sink& sink, const Notice& notice) {
    if (notice.of_inode.is_due && !notice.of_inode.is_due()) {
        return;
    }
    switch (notice.what) {
        case What::kEntry:
            sink.invalidate_entry(notice.node, notice.name);
            break;
        case What::kInode:
            sink.invalidate_inode(notice.node, notice.of_inode.from);
            break;
        case What::kAttributes:
            sink.invalidate_attributes(notice.node);
            break;
    }
    if (notice.of_inode.done) {
        notice.of_inode.done();
    }
}

void KernelNotifier::run() {
    MutexLock lock(mutex_);
    for (;;) {
        std::optional<Notice> notice;
        changed_.wait(lock, [&]() REQUIRES(mutex_) { return stop_ || (notice = next()).has_value(); });
        if (!notice) {
            return;
        }
        Sink& sink = *sink_;
        const std::uint64_t node = notice->node;
        under_way_.insert(node);
        start_thread_if_needed();
        lock.unlock();
        deliver(sink, *notice);
        notice.reset();
        lock.lock();
        under_way_.erase(node);
        changed_.notify_all();
    }
}

}  // namespace ckptfs
