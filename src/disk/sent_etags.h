// SPDX-License-Identifier: Apache-2.0
// Maps the ETags under which a disk has acknowledged versions (--ack disk) to those that the bucket gave them. The
// mount uses the first until it ends; the files on the disk are kept under the second, for the next mount.
//
// Beyond kMost the oldest entries are dropped: what is kept of these versions is not found until the mount has ended.
// Threads: all functions may be called from any thread.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"

namespace ckptfs {

class SentEtags {
public:
    // Each takes about 300 bytes.
    static constexpr std::size_t kMost = 65'536;

    // Returns the ETag under which the version was kept until now.
    std::string note(const std::string& acknowledged, const std::string& etag) EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        const auto [found, is_new] = etags_.try_emplace(acknowledged, acknowledged);
        if (is_new) {
            order_.push_back(acknowledged);
            if (order_.size() > kMost) {
                etags_.erase(order_.front());
                order_.pop_front();
            }
        }
        return std::exchange(found->second, etag);
    }
    [[nodiscard]] std::string in_bucket(const std::string& etag) const EXCLUDES(mutex_) {
        const MutexLock lock(mutex_);
        const auto found = etags_.find(etag);
        return found == etags_.end() ? etag : found->second;
    }

private:
    mutable Mutex mutex_;
    std::unordered_map<std::string, std::string> etags_ GUARDED_BY(mutex_);
    // In the order in which they were noted.
    std::deque<std::string> order_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
