// SPDX-License-Identifier: Apache-2.0
#include "writeback/etag_aliases.h"

#include <chrono>

#include "ckptfs/store_limits.h"

namespace ckptfs {

void EtagAliases::note(const std::string& key, const std::string& acknowledged, const std::string& etag,
                       const Times& times) {
    if (acknowledged == etag) {
        // An earlier version's would be taken for this one's.
        aliases_.erase(key);
        return;
    }
    aliases_.insert_or_assign(key, Alias{acknowledged, etag, times, ++last_});
    order_.push_back({key, last_});
    while (aliases_.size() > kMost || order_.size() > 2 * kMost) {
        // Only what was not noted again since.
        const auto found = aliases_.find(order_.front().key);
        if (found != aliases_.end() && found->second.number == order_.front().number) {
            aliases_.erase(found);
        }
        order_.pop_front();
    }
}

void EtagAliases::show(ObjectInfo& object) const {
    const auto found = aliases_.find(object.key);
    if (found == aliases_.end() || found->second.etag != object.etag) {
        return;
    }
    object.etag = found->second.acknowledged;
    const Times& times = found->second.times;
    if (times.acknowledged != WallTime{} && object.last_modified <= times.sent + kTimesDifferBy) {
        // As a store tells it: a time that is compared with those of what the store has dated.
        object.last_modified = std::chrono::floor<std::chrono::seconds>(times.acknowledged);
    }
}

std::string EtagAliases::here(const std::string& key, const std::string& etag) const {
    const auto found = aliases_.find(key);
    return found != aliases_.end() && found->second.etag == etag ? found->second.acknowledged : etag;
}

std::string EtagAliases::there(const std::string& key, const std::string& etag) const {
    const auto found = aliases_.find(key);
    return found != aliases_.end() && found->second.acknowledged == etag ? found->second.etag : etag;
}

}  // namespace ckptfs
