// SPDX-License-Identifier: Apache-2.0
// Callbacks that lead to callbacks, without a stack that grows with their number.
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace ckptfs {

using PostponedCalls = std::vector<std::function<void()>>;

// The calls that are postponed on this thread; null outside of call_flat().
inline PostponedCalls*& postponed_calls() {
    thread_local PostponedCalls* calls = nullptr;
    return calls;
}

// Runs `task` now; or, when this thread is already inside such a task, as soon as the outermost one has returned, in
// the order of the calls.
template <class Task>
void call_flat(Task&& task) {
    PostponedCalls*& postponed = postponed_calls();
    if (postponed != nullptr) {
        postponed->emplace_back(std::forward<Task>(task));
        return;
    }
    PostponedCalls later;
    postponed = &later;
    std::forward<Task>(task)();
    while (!later.empty()) {
        const PostponedCalls batch = std::exchange(later, {});
        for (const std::function<void()>& call : batch) {
            call();
        }
    }
    postponed = nullptr;
}

}  // namespace ckptfs
