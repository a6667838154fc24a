// SPDX-License-Identifier: Apache-2.0
// Whether the store honours conditional deletes. Only then may a removal be acknowledged before it is made: a
// conditional delete that arrives late spares what another mount has committed meanwhile.
//
// Probed once per mount, with an object of its own below .ckptfs/, in five requests: a wrong ETag must be refused, and
// the ETag that listings show must be accepted. The same requests show whether the store dates objects and replies by
// one clock, which a proxy in between may prevent. Without a result the probe is retried after a minute.
//
// Ownership: store, executor and clock outlive it; held by shared_ptr, since a probe in the background may outlast its
// owner. Threads: all functions may be called from any thread.
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

// Whether a removal in a batch can be pinned to a version (If-Match).
enum class DeletePins : std::uint8_t { kUnknown, kHonoured, kIgnored };

class DeleteConditions : public std::enable_shared_from_this<DeleteConditions> {
public:
    DeleteConditions(ObjectStore& store, Executor& blocking, const Clock& clock, std::string prefix)
        : store_(store), blocking_(blocking), clock_(clock), prefix_(std::move(prefix)) {}

    // Whether conditional deletes are honoured; false until that is known. Starts a probe in the background if
    // necessary.
    [[nodiscard]] bool honoured();
    // Probes first if the result is not known; kUnknown for a minute after a probe that failed. Blocks.
    [[nodiscard]] DeletePins find_out();
    // If the store honours them: whether Last-Modified can be compared with the store's time as its replies give it.
    [[nodiscard]] bool dates_agree() const;
    // A probe is under way: its object may be in the store.
    [[nodiscard]] bool is_asking() const;
    // Calls back once the object of the probe is gone from the store, or could not be removed; at once if no probe is
    // under way.
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
