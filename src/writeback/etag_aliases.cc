// SPDX-License-Identifier: Apache-2.0
#include "writeback/etag_aliases.h"

namespace ckptfs {

void EtagAliases::note(const std::string& key, const std::string& acknowledged, const std::string& etag) {
    if (acknowledged == etag) {
        // An earlier version's would be taken for this one's.
        aliases_.erase(key);
        return;
    }
    aliases_.insert_or_assign(key, Alias{acknowledged, etag, ++last_});
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

std::string EtagAliases::here(const std::string& key, const std::string& etag) const {
    const auto found = aliases_.find(key);
    return found != aliases_.end() && found->second.etag == etag ? found->second.acknowledged : etag;
}

std::string EtagAliases::there(const std::string& key, const std::string& etag) const {
    const auto found = aliases_.find(key);
    return found != aliases_.end() && found->second.acknowledged == etag ? found->second.etag : etag;
}

}  // namespace ckptfs
