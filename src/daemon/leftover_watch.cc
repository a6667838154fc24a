// SPDX-License-Identifier: Apache-2.0
#include "daemon/leftover_watch.h"

#include <chrono>
#include <utility>

#include "base/executors.h"
#include "base/mutex.h"

namespace ckptfs {
namespace {

constexpr Milliseconds kPeriod{std::chrono::seconds(10)};

}  // namespace

// Shared with the thread that looks.
struct LeftoverWatch::Look {
    Look(Place watched, Found callback) : place(std::move(watched)), found(std::move(callback)) {}

    bool may_begin() {
        const MutexLock lock(mutex);
        return another_lives && !std::exchange(is_under_way, true);
    }
    // Also if the look was dropped, for want of a thread.
    void ends() {
        const MutexLock lock(mutex);
        is_under_way = false;
    }
    void run() {
        const bool lives = is_another_in_use(place.directory, place.place, place.journal);
        std::vector<Leftovers> leftovers = take_leftovers(place.directory, place.place);
        const MutexLock lock(mutex);
        another_lives = lives;
        if (!has_ended) {
            // With the mutex, so that the destructor waits for it: `found` only posts, to an executor that outlives the
            // watch and has not stopped.
            found(std::move(leftovers));
        }
    }

    const Place place;
    const Found found;
    const std::unique_ptr<Executor> thread = make_detached_executor("ckptfs-left");
    Mutex mutex;
    bool another_lives GUARDED_BY(mutex) = true;
    bool is_under_way GUARDED_BY(mutex) = false;
    bool has_ended GUARDED_BY(mutex) = false;
};

LeftoverWatch::LeftoverWatch(Timer& timer, Place place, Found found)
    : look_(std::make_shared<Look>(std::move(place), std::move(found))),
      periodic_(std::make_unique<Periodic>(timer, kPeriod, [look = look_] {
          if (look->may_begin()) {
              const std::shared_ptr<void> under_way(nullptr, [look](void*) { look->ends(); });
              look->thread->post([look, under_way] { look->run(); });
          }
      })) {}

LeftoverWatch::~LeftoverWatch() {
    periodic_.reset();
    const MutexLock lock(look_->mutex);
    look_->has_ended = true;
}

}  // namespace ckptfs
