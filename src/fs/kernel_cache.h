// SPDX-License-Identifier: Apache-2.0
// Notices by which the filesystem tells the kernel, unasked, to drop what it has cached.
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
        // Pages before the one that has this byte stay.
        std::uint64_t from = 0;
        // Called right before the kernel is told, on any thread. If it returns false, the notice is dropped, and the
        // caller will give it again.
        std::function<bool()> is_due{};
        // Called once the pages are gone, on any thread; not at all if the notice is dropped.
        std::function<void()> done{};
        // Released after that, or when the notice is dropped: in favour of another that holds something, too, whose
        // caller has no lock.
        std::shared_ptr<const void> held{};
    };
    // Drops the inode's pages and attributes.
    virtual void invalidate_inode(std::uint64_t node, InodeNotice notice) = 0;
    void invalidate_inode(std::uint64_t node) { invalidate_inode(node, {}); }
    // Drops the inode's attributes only.
    virtual void invalidate_attributes(std::uint64_t node) = 0;
    // Whether a file that bypasses the page cache can be mapped shared (kernel 6.6), and shows its changes at once to
    // those that read it through the page cache. Known once the kernel sends requests.
    [[nodiscard]] virtual bool direct_io_allows_mmap() const = 0;
};

}  // namespace ckptfs::fs
