// SPDX-License-Identifier: Apache-2.0
// Whether the store honours conditional deletes: only there may a removal be acknowledged before it is made, because
// only there does one that lands late spare what another mount has committed meanwhile.
//
// Probed once per mount, with an object of its own below .ckptfs/, in five requests: a wrong ETag must be
// refused, and the ETag that listings show must be accepted. The same requests show whether the store dates objects and
// answers by one clock, which a proxy between may not let it do. Without an answer the probe is retried after a minute.
//
// Ownership: store, executor and clock outlive it; held by shared_ptr, since what goes on in the background may outlast
// its owner. Threads: all functions may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "ckptfs/executor.h"
#include "ckptfs/object_store.h"

namespace ckptfs::fs {

// Whether a removal in a batch may name the version that is meant.
enum class DeletePins : std::uint8_t { kUnknown, kHonoured, kIgnored };

class DeleteConditions : public std::enable_shared_from_this<DeleteConditions> {
public:
    DeleteConditions(ObjectStore& store, Executor& blocking, const Clock& clock, std::string prefix)
        : store_(store), blocking_(blocking), clock_(clock), prefix_(std::move(prefix)) {}

    // False until it is known; the probe goes on in the background.
    [[nodiscard]] bool honoured();
    // Finds out first. On threads that may wait only.
    [[nodiscard]] DeletePins find_out();
    // Where it honours them: Last-Modified can be compared with the store's time as its answers tell it.
    [[nodiscard]] bool dates_agree() const;
    // An object of the probe may be in the store.
    [[nodiscard]] bool is_asking() const;
    // Calls back once no object of the probe is in the store, or could not be removed; at once where none is under way.
    void when_idle(std::function<void()> run);

private:
    enum class Known : std::uint8_t { kNothing, kAsking, kHonoured, kIgnored };

    void ask();
    [[nodiscard]] DeletePins pins() const REQUIRES(mutex_);

    ObjectStore& store_;
    Executor& blocking_;
    const Clock& clock_;
    const std::string prefix_;

    mutable Mutex mutex_;
    Known known_ GUARDED_BY(mutex_) = Known::kNothing;
    bool dates_agree_ GUARDED_BY(mutex_) = false;
    SteadyTime not_before_ GUARDED_BY(mutex_){};
    std::vector<std::function<void()>> waiting_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
