// SPDX-License-Identifier: Apache-2.0
// What the filesystem tells the kernel on its own account: "forget what you have cached of this".
// Threads: may be called from any thread, never while a request on the same inode or directory is being answered with
// a lock held; the implementation hands the notice to a thread of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace ckptfs::fs {

class KernelCache {
public:
    virtual ~KernelCache() = default;
    virtual void invalidate_entry(std::uint64_t parent, std::string name) = 0;
    struct InodeNotice {
        // The pages before the one that has this byte stay.
        std::uint64_t from = 0;
        // Called right before the kernel is told, on any thread. Where it says no, the notice is dropped, and the
        // caller will give it again.
        std::function<bool()> is_due{};
        // Called once its pages are gone, on any thread; not at all where the notice is dropped.
        std::function<void()> done{};
        // Let go of after that, or where the notice is dropped: for another that holds something, too, whose
        // caller has no lock.
        std::shared_ptr<const void> held{};
    };
    // Its pages and its attributes.
    virtual void invalidate_inode(std::uint64_t node, InodeNotice notice) = 0;
    void invalidate_inode(std::uint64_t node) { invalidate_inode(node, {}); }
    // Its attributes only.
    virtual void invalidate_attributes(std::uint64_t node) = 0;
};

}  // namespace ckptfs::fs
