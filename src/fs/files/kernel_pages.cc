// SPDX-License-Identifier: Apache-2.0
#include "fs/files/kernel_pages.h"

#include <utility>

namespace ckptfs::fs {

// The kernel drops what it has of the inode by which a change came.
void KernelPages::show_to_cached_readers(const Node& node) {
    bool are_there = false;
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        are_there = node.cached_handles > 0;
    }
    if (are_there) {
        state_.env.kernel_cache.invalidate_inode(node.id);
    }
}

void KernelPages::show_growth(const Grown& grown, const ObjectVersion& shown,
                              const std::shared_ptr<const void>& drops) {
    const auto show = [this, follower = grown.node, shown] {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (follower->grown) {
            follower->committed = shown;
            follower->reader = nullptr;
            // Else a notice of what has been added since is on its way, and shows that.
            if (follower->grown->etag == shown.etag) {
                follower->grown.reset();
            }
        }
    };
    state_.env.kernel_cache.invalidate_inode(grown.node->id, {.from = grown.from, .done = show, .held = drops});
}

// The page cache has taken the written pages on their way here. From now on reads get the version before.
void KernelPages::drop_written_pages(const NodePtr& node, const FileWriter& writer) {
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        node->forget_pages();
        node->has_uncertain_size =
            node->has_uncertain_size || (node->committed && writer.size() != node->committed->size);
    }
    drop_pages_between_reads(node);
}

// An answer that is overtaken by a notice does not teach the kernel the end of the file: up to the size of what was
// given up it would fill up with zeros, and show them.
void KernelPages::drop_pages_between_reads(const NodePtr& node) {
    const auto is_due = [this, node] {
        const NodeTable::Lock lock = state_.nodes.lock();
        node->drops_pages_after_reads = node->reads_across_end > 0;
        return !node->drops_pages_after_reads;
    };
    state_.env.kernel_cache.invalidate_inode(node->id, {.is_due = is_due});
}

Reply<Payload> KernelPages::noted_across_end(const NodePtr& node, std::uint64_t end, Reply<Payload> reply) {
    {
        const NodeTable::Lock lock = state_.nodes.lock();
        if (!node->committed || end <= node->committed->size) {
            return reply;
        }
        ++node->reads_across_end;
    }
    return [this, node, reply = std::move(reply)](Result<Payload> data) {
        reply(std::move(data));
        bool drops_pages = false;
        {
            const NodeTable::Lock lock = state_.nodes.lock();
            drops_pages = --node->reads_across_end == 0 && std::exchange(node->drops_pages_after_reads, false);
        }
        if (drops_pages) {
            drop_pages_between_reads(node);
        }
    };
}

}  // namespace ckptfs::fs
