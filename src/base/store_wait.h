// SPDX-License-Identifier: Apache-2.0
// The object store for code that may wait: namespace operations on the blocking executor.
//
// Every wait ends, because the store completes every call: with success, or with an error once its own retries and
// deadlines are spent.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <utility>

#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs {

// ask<ObjectInfo>([&](auto done) { store.head(key, done); })
template <class T, class Start>
[[nodiscard]] std::future<Result<T>> ask(Start start) {
    auto promise = std::make_shared<std::promise<Result<T>>>();
    std::future<Result<T>> answer = promise->get_future();
    start(StoreDone<T>([promise](Result<T> result) { promise->set_value(std::move(result)); }));
    return answer;
}

template <class T, class Start>
Result<T> wait_for(Start start) {
    return ask<T>(std::move(start)).get();
}

// Starts `count` operations, at most `limit` of them at once, and waits for all that were started. After the first
// failure no further one is started; that failure is returned.
Status for_each_in_parallel(std::size_t count, std::size_t limit,
                            const std::function<void(std::size_t index, std::function<void(Status)> done)>& start);

}  // namespace ckptfs
