// SPDX-License-Identifier: Apache-2.0
// A store that reads versions that a disk has acknowledged from that disk, even once they are in the bucket, for as
// long as their bodies are held (HeldChange). Only get() is to be called, with a key and an ETag.
//
// Not for programs' reads: what the bucket has by now is not checked.
//
// Ownership: the store outlives it. Threads: as ObjectStore.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/forwarding_store.h"
#include "base/mutex.h"
#include "writeback/overlay.h"
#include "writeback/store_rules.h"
#include "writeback/writeback_store.h"

namespace ckptfs {

class BodiesOnDisk final : public ForwardingStore {
public:
    explicit BodiesOnDisk(WritebackStore& store) : ForwardingStore(store), store_(store) {}

    void add(const std::shared_ptr<const HeldChange>& held) EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        if (held_.size() >= swept_at_) {
            std::erase_if(held_, [](const auto& each) { return each.second.expired(); });
            swept_at_ = std::max(swept_at_, 2 * held_.size());
        }
        // A copy that is renamed back has the key and the ETag of its source, and either may be released first.
        held_.emplace(std::pair(held->key(), held->change.object.etag), held);
    }

    void get(GetRequest request, StoreDone<GetResponse> done) override {
        if (const std::shared_ptr<const HeldChange> held = find(request.key, request.if_match)) {
            store_.get_version(std::move(request), held, std::move(done));
        } else {
            done(another_version(request.key));
        }
    }

private:
    [[nodiscard]] std::shared_ptr<const HeldChange> find(const std::string& key, const std::string& etag) const
        EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        const auto [first, last] = held_.equal_range({key, etag});
        for (auto each = first; each != last; ++each) {
            if (auto held = each->second.lock()) {
                return held;
            }
        }
        return nullptr;
    }

    WritebackStore& store_;
    mutable Mutex mutex_;
    // By key and ETag; some have expired.
    std::multimap<std::pair<std::string, std::string>, std::weak_ptr<const HeldChange>> held_ GUARDED_BY(mutex_);
    std::size_t swept_at_ GUARDED_BY(mutex_) = 64;
};

}  // namespace ckptfs
