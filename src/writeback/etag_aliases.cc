// SPDX-License-Identifier: Apache-2.0
#include "writeback/etag_aliases.h"

#include "ckptfs/store_limits.h"

namespace ckptfs {

void EtagAliases::note(const std::string& key, const std::string& acknowledged, const std::string& etag,
                       const Times& times) {
    if (acknowledged == etag && times.acknowledged == WallTime{}) {
        // An earlier version's entry would be treated as this one's.
        aliases_.erase(key);
        return;
    }
    aliases_.insert_or_assign(key, Alias{acknowledged, etag, times, ++last_});
    order_.push_back({key, last_});
    while (aliases_.size() > kMost || order_.size() > 2 * kMost) {
        // Only entries that were not noted again since.
        const auto found = aliases_.find(order_.front().key);
        if (found != aliases_.end() && found->second.number == order_.front().number) {
            aliases_.erase(found);
        }
        order_.pop_front();
    }
}

std::optional<WallTime> EtagAliases::acknowledged_at(const ObjectInfo& object) const {
    const auto found = aliases_.find(object.key);
    const bool is_known = found != aliases_.end() && found->second.times.acknowledged != WallTime{};
    const bool is_this = is_known && (found->second.etag == object.etag || found->second.acknowledged == object.etag) &&
                         object.last_modified <= found->second.times.sent + kTimesDifferBy;
    return is_this ? std::optional(found->second.times.acknowledged) : std::nullopt;
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
