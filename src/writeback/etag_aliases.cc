// SPDX-License-Identifier: Apache-2.0
#include "writeback/etag_aliases.h"

namespace ckptfs {

void EtagAliases::note(const std::string& key, const std::string& acknowledged, const std::string& etag) {
    if (acknowledged == etag) {
        return;
    }
    if (aliases_.insert_or_assign(key, Alias{acknowledged, etag}).second) {
        order_.push_back(key);
    }
    while (order_.size() > kMost) {
        aliases_.erase(order_.front());
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
