// SPDX-License-Identifier: Apache-2.0
// Old names of files that a rename published under their new name and could not remove: the rename can be tried again,
// and then only removes. What is left is an earlier version of the file. It is the only one as soon as the new name
// holds something else, or nothing: then it is renamed like any other file.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "fs/state/written_version.h"

namespace ckptfs::fs {

struct LeftoverName {
    // ETag of what is left under the old key.
    std::string etag;
    std::string new_key;
    // ETag of what the new key holds instead, by the last commit of `version`.
    std::string published;
    std::weak_ptr<const WrittenVersion> version;
};

class LeftoverNames {
public:
    void add(const std::string& old_key, LeftoverName left) {
        const MutexLock lock(mutex_);
        if (names_.size() < kMost) {
            names_.insert_or_assign(old_key, std::move(left));
        }
    }
    // Another version has the old name by now, perhaps of the same bytes and thus with the same ETag.
    void forget(const std::string& old_key) {
        const MutexLock lock(mutex_);
        names_.erase(old_key);
    }
    // A commit to the new key: what is open goes on under its new name, and is the same file.
    void published(const std::string& new_key, const std::string& etag,
                   const std::shared_ptr<const WrittenVersion>& version) {
        const MutexLock lock(mutex_);
        for (auto& [old_key, left] : names_) {
            // Compared without lock(): the version is not to be destroyed here.
            const bool is_same = !left.version.owner_before(version) && !version.owner_before(left.version);
            if (is_same && left.new_key == new_key) {
                left.published = etag;
            }
        }
    }
    [[nodiscard]] std::optional<LeftoverName> find(const std::string& old_key, const std::string& etag,
                                                   const std::string& new_key) const {
        const MutexLock lock(mutex_);
        const auto found = names_.find(old_key);
        const bool is_left = found != names_.end() && found->second.etag == etag && found->second.new_key == new_key;
        return is_left ? std::optional(found->second) : std::nullopt;
    }

private:
    static constexpr std::size_t kMost = 1024;

    mutable Mutex mutex_;
    std::map<std::string, LeftoverName> names_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
