// SPDX-License-Identifier: Apache-2.0
// What the filesystem tells the kernel on its own account: "forget what you have cached of this".
// Threads: may be called from any thread, never while a request on the same inode or directory is being answered with
// a lock held; the implementation hands the notice to a thread of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ckptfs::fs {

class KernelCache {
public:
    virtual ~KernelCache() = default;
    virtual void invalidate_entry(std::uint64_t parent, std::string name) = 0;
    // Its pages and its attributes. `done`, if there is one, is called once they are gone, on any thread; not at all
    // where the notice is dropped.
    virtual void invalidate_inode(std::uint64_t node, std::function<void()> done) = 0;
    void invalidate_inode(std::uint64_t node) { invalidate_inode(node, {}); }
    // Its attributes only.
    virtual void invalidate_attributes(std::uint64_t node) = 0;
};

}  // namespace ckptfs::fs
