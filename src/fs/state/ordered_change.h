// SPDX-License-Identifier: Apache-2.0
// Changes of names that wait for their turn (key_order.h) without occupying a thread.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fs/state/shared_state.h"

namespace ckptfs::fs {

// The keys of the names, without those whose directory is gone.
[[nodiscard]] std::vector<std::string> keys_of(const SharedState& state, const std::vector<NameInDirectory>& names);

// May block on the store. The function that it returns is called when the next change may begin.
using OrderedChange = std::function<std::function<void()>()>;

// Runs `change` on the blocking executor once this mount has the keys of `names` to itself, whatever they are by then.
void change_in_order(SharedState& state, std::vector<NameInDirectory> names, OrderedChange change);

// As above; replies with what `change` returns.
template <class T, class Change>
void answer_in_order(SharedState& state, std::vector<NameInDirectory> names, Reply<T> reply, Change change) {
    change_in_order(state, std::move(names), [reply = std::move(reply), change = std::move(change)] {
        return [reply, answer = change()] { reply(answer); };
    });
}

// Registers a change of these names, until the reply that is returned is called (name_changes.h).
template <class T>
[[nodiscard]] Reply<T> begin_change(SharedState& state, const std::vector<NameInDirectory>& names, Reply<T> reply,
                                    const NameChanges::Left& has_left = nullptr) {
    std::vector<NodePtr> directories;
    {
        const NodeTable::Lock lock = state.nodes.lock();
        state.name_changes.begin(names, has_left);
        for (const NameInDirectory& each : names) {
            if (NodePtr directory = state.nodes.find(lock, each.directory)) {
                NodeTable::keep(lock, *directory);
                directories.push_back(std::move(directory));
            }
        }
    }
    return [&state, names, directories, has_left, reply = std::move(reply)](Result<T> changed) {
        state.name_changes.end(names, has_left);
        if constexpr (std::is_same_v<T, Entry>) {
            if (changed && !state.name_changes.is_under_way(names.front())) {
                // The change has made the name, and is over.
                changed->valid_for = state.env.names.metadata_ttl;
            }
        }
        {
            const NodeTable::Lock lock = state.nodes.lock();
            for (const NodePtr& directory : directories) {
                state.nodes.forget(lock, directory, 1);
            }
        }
        reply(std::move(changed));
    };
}

}  // namespace ckptfs::fs
