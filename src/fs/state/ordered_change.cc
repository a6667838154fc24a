// SPDX-License-Identifier: Apache-2.0
#include "fs/state/ordered_change.h"

#include <utility>

namespace ckptfs::fs {

std::vector<std::string> keys_of(const SharedState& state, const std::vector<NameInDirectory>& names) {
    std::vector<std::string> keys;
    const NodeTable::Lock lock = state.nodes.lock();
    for (const NameInDirectory& each : names) {
        if (const Result<NodePtr> directory = state.directory(lock, each.directory)) {
            keys.push_back(state.key(lock, **directory) + each.name);
        }
    }
    return keys;
}

void change_in_order(SharedState& state, std::vector<NameInDirectory> names, OrderedChange change) {
    const std::vector<std::string> keys = keys_of(state, names);
    const KeyOrder::Place place = state.key_order.enter(keys);
    state.key_order.when_first(place, [&state, names = std::move(names), change = std::move(change), keys, place] {
        state.env.blocking.post([&state, names, change, keys, place] {
            // A directory above may have been renamed meanwhile.
            if (keys_of(state, names) != keys) {
                state.key_order.leave(place);
                change_in_order(state, names, change);
                return;
            }
            const std::function<void()> reply = change();
            state.key_order.leave(place);
            reply();
        });
    });
}

}  // namespace ckptfs::fs
