// SPDX-License-Identifier: Apache-2.0
// When this mount first saw an upload, for stores whose lists of uploads do not say when each began.
//
// Threads: of() may be called from any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"

namespace ckptfs::fs {

class FirstSeen {
public:
    // When the upload was first seen; `now` if that is now.
    [[nodiscard]] WallTime of(const OpenUpload& upload, WallTime now) {
        const std::string name = upload.upload.key + '\n' + upload.upload.id;
        const MutexLock lock(mutex_);
        if (const auto known = seen_.find(name); known != seen_.end()) {
            return known->second;
        }
        if (seen_.size() >= kMost) {
            // An upload that is forgotten counts as new once more.
            const auto earlier = [](const auto& one, const auto& other) { return one.second < other.second; };
            seen_.erase(std::min_element(seen_.begin(), seen_.end(), earlier));
        }
        return seen_.emplace(name, now).first->second;
    }

private:
    static constexpr std::size_t kMost = 10'000;

    Mutex mutex_;
    std::map<std::string, WallTime> seen_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
