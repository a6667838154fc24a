// SPDX-License-Identifier: Apache-2.0
// Old names of files that were published under their new name and could not be removed: the rename can be tried again,
// and then only removes.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"

namespace ckptfs::fs {

class LeftoverNames {
public:
    // `etag`: of what is left under the old key.
    void add(const std::string& old_key, std::string etag, std::string new_key) {
        const MutexLock lock(mutex_);
        if (names_.size() < kMost) {
            names_.insert_or_assign(old_key, Leftover{std::move(etag), std::move(new_key)});
        }
    }
    // Another version has the old name by now, perhaps of the same bytes and thus with the same ETag.
    void forget(const std::string& old_key) {
        const MutexLock lock(mutex_);
        names_.erase(old_key);
    }
    [[nodiscard]] bool has(const std::string& old_key, const std::string& etag, const std::string& new_key) const {
        const MutexLock lock(mutex_);
        const auto found = names_.find(old_key);
        return found != names_.end() && found->second.etag == etag && found->second.new_key == new_key;
    }

private:
    struct Leftover {
        std::string etag;
        std::string new_key;
    };
    static constexpr std::size_t kMost = 1024;

    mutable Mutex mutex_;
    std::map<std::string, Leftover> names_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
