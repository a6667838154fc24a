// SPDX-License-Identifier: Apache-2.0
// What the kernel has cached of open files, and when it is told to drop it.
//
// Threads: all functions may be called from any thread, without the node table's lock.
#pragma once

#include <cstdint>
#include <memory>

#include "fs/state/shared_state.h"

namespace ckptfs::fs {

class KernelPages {
public:
    // A node that follows another one, which has grown by a commit.
    struct Grown {
        NodePtr node;
        // Where the version that the node has shown until now ends; 0 if the new one does not just continue it.
        std::uint64_t from = 0;
    };

    explicit KernelPages(SharedState& state) : state_(state) {}

    // Drops the kernel's pages of the node if it has cached readers: for a change that came by another inode.
    void show_to_cached_readers(const Node& node);
    // Drops the follower's pages from `grown.from` on, then shows it the appended bytes, if it still follows.
    void show_growth(const Grown& grown, const ObjectVersion& shown, const std::shared_ptr<const void>& drops);
    // For data that was given up.
    void drop_written_pages(const NodePtr& node, const FileWriter& writer);
    // Wraps the reply to a read that may go beyond the end, from which the kernel learns the end.
    [[nodiscard]] Reply<Payload> noted_across_end(const NodePtr& node, std::uint64_t end, Reply<Payload> reply);

private:
    void drop_pages_between_reads(const NodePtr& node);

    SharedState& state_;
};

}  // namespace ckptfs::fs
