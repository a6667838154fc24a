// SPDX-License-Identifier: Apache-2.0
#include "fs/names/listed_names.h"

#include <algorithm>

namespace ckptfs::fs {

void ListedNames::add(NodeId directory, const std::string& name, const ObjectVersion& version, SteadyTime asked) {
    const MutexLock lock(mutex_);
    auto* found = std::find_if(directories_.begin(), directories_.end(),
                               [directory](const Directory& each) { return each.id == directory; });
    if (found == directories_.end()) {
        found = directories_.begin() + static_cast<std::ptrdiff_t>(next_++ % kMaxDirectories);
        *found = Directory{directory, {}};
    }
    if (found->names.size() >= kMaxNames) {
        found->names.clear();
    }
    found->names.insert_or_assign(name, Listed{version, asked});
}

void ListedNames::forget(NodeId directory, const std::string& name) {
    const MutexLock lock(mutex_);
    for (Directory& each : directories_) {
        if (each.id == directory) {
            each.names.erase(name);
        }
    }
}

void ListedNames::forget_all(NodeId directory) {
    const MutexLock lock(mutex_);
    for (Directory& each : directories_) {
        if (each.id == directory) {
            each.names.clear();
        }
    }
}

std::vector<NodeId> ListedNames::directories() const {
    const MutexLock lock(mutex_);
    std::vector<NodeId> ids;
    for (const Directory& each : directories_) {
        ids.push_back(each.id);
    }
    return ids;
}

std::optional<ObjectVersion> ListedNames::find(NodeId directory, const std::string& name, SteadyTime since) const {
    const MutexLock lock(mutex_);
    for (const Directory& each : directories_) {
        if (each.id != directory) {
            continue;
        }
        const auto found = each.names.find(name);
        if (found != each.names.end() && found->second.asked >= since) {
            return found->second.version;
        }
    }
    return std::nullopt;
}

}  // namespace ckptfs::fs
