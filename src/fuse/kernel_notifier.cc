// SPDX-License-Identifier: Apache-2.0
#include "fuse/kernel_notifier.h"

#include <utility>

namespace ckptfs {

KernelNotifier::KernelNotifier() : thread_([this] { run(); }) {}

KernelNotifier::~KernelNotifier() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void KernelNotifier::connect(Sink& sink) {
    {
        const std::lock_guard lock(mutex_);
        sink_ = &sink;
    }
    changed_.notify_all();
}

void KernelNotifier::disconnect() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    sink_ = nullptr;
    queue_.clear();
    changed_.wait(lock, [this] { return !working_; });
}

void KernelNotifier::invalidate_entry(std::uint64_t parent, std::string name) {
    enqueue({parent, std::move(name)});
}

void KernelNotifier::invalidate_inode(std::uint64_t node) {
    enqueue({node, {}});
}

void KernelNotifier::enqueue(Notice notice) {
    {
        const std::lock_guard lock(mutex_);
        if (closed_) {
            return;
        }
        if (queue_.size() == kMaxQueued) {
            queue_.pop_front();
        }
        queue_.push_back(std::move(notice));
    }
    changed_.notify_all();
}

void KernelNotifier::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return stop_ || (sink_ != nullptr && !queue_.empty()); });
        if (stop_) {
            return;
        }
        const Notice notice = std::move(queue_.front());
        queue_.pop_front();
        Sink& sink = *sink_;
        working_ = true;
        lock.unlock();
        if (notice.name.empty()) {
            sink.invalidate_inode(notice.node);
        } else {
            sink.invalidate_entry(notice.node, notice.name);
        }
        lock.lock();
        working_ = false;
        changed_.notify_all();
    }
}

}  // namespace ckptfs
