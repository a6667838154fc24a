// SPDX-License-Identifier: Apache-2.0
// Changes of names that wait for their turn (key_order.h) without a thread.
// Threads: from any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fs/shared_state.h"

namespace ckptfs::fs {

// Without those whose directory is gone.
[[nodiscard]] std::vector<std::string> keys_of(const SharedState& state, const std::vector<NameInDirectory>& names);

// May wait for the store; what it returns is called when the next change may begin.
using OrderedChange = std::function<std::function<void()>()>;

// Runs `change` on the blocking executor once this mount has the keys of `names` to itself, whatever they are by then.
void change_in_order(SharedState& state, std::vector<NameInDirectory> names, OrderedChange change);

// `change` gives the answer.
template <class T, class Change>
void answer_in_order(SharedState& state, std::vector<NameInDirectory> names, Reply<T> reply, Change change) {
    change_in_order(state, std::move(names), [reply = std::move(reply), change = std::move(change)] {
        return [reply, answer = change()] { reply(answer); };
    });
}

}  // namespace ckptfs::fs
