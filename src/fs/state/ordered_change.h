// SPDX-License-Identifier: Apache-2.0
// Changes of names that wait for their turn (key_order.h) without occupying a thread.
#pragma once

#include <functional>
#include <string>
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

}  // namespace ckptfs::fs
