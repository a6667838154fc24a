// SPDX-License-Identifier: Apache-2.0
#include "fs/objects/delete_conditions.h"

#include <chrono>
#include <optional>
#include <vector>

#include "base/store_wait.h"
#include "base/text.h"
#include "base/uuid.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"
#include "fs/objects/pinned_removal.h"

namespace ckptfs::fs {

namespace {

constexpr Milliseconds kAskAgainAfter{60'000};
// Both times are exact to the second, and an upload of one byte takes no longer than this.
constexpr std::chrono::seconds kSameTime{5};

Result<std::vector<DeleteFailure>> remove_pinned(ObjectStore& store, const std::string& key, const std::string& etag) {
    return wait_for<std::vector<DeleteFailure>>([&](auto done) { store.remove_many({{key, etag}}, done); });
}

bool is_another_version(const Result<std::vector<DeleteFailure>>& failures) {
    return failures && failures->size() == 1 && failures->front().error.errno_value == ESTALE;
}

// Whether asking again is useless. Rights may be granted later, so EACCES is not final.
bool is_final(const Error& error) {
    return !error.retryable && error.errno_value != EACCES && error.errno_value != ECANCELED;
}

bool is_same_time(WallTime one, WallTime other) {
    const bool are_told = one != WallTime{} && other != WallTime{};
    return are_told && one - other <= kSameTime && other - one <= kSameTime;
}

struct Found {
    bool honoured = false;
    bool dates_agree = false;
};

// Probes with an object that is there; its upload was answered at `uploaded`. A final refusal means that conditions are
// not honoured.
Result<Found> probe(ObjectStore& store, const std::string& key, WallTime uploaded) {
    const auto wrong = remove_pinned(store, key, kWrongETag);
    if (!is_another_version(wrong)) {
        return wrong || is_final(wrong.error()) ? Result<Found>(Found{}) : failure(wrong.error());
    }
    const Result<ObjectInfo> listed = listed_object(store, key);
    if (!listed) {
        return failure(listed.error());
    }
    // Refused as another version, it may be gone: by an attempt whose answer was lost.
    const auto right = remove_pinned(store, key, listed->etag);
    if (!is_another_version(right) && (!right || !right->empty())) {
        return right || is_final(right.error()) ? Result<Found>(Found{}) : failure(right.error());
    }
    const Result<ObjectInfo> left = wait_for<ObjectInfo>([&](auto done) { store.head(key, done); });
    if (!left && left.error().errno_value != ENOENT) {
        return failure(left.error());
    }
    return Found{!left, is_same_time(uploaded, listed->last_modified)};
}

Result<Found> probe_once(ObjectStore& store, const std::string& key) {
    PutRequest put;
    put.key = key;
    put.body = Payload::from_string("x");
    const auto made = wait_for<PutResponse>([&](auto done) { store.put(put, done); });
    if (!made) {
        return failure(made.error());
    }
    Result<Found> found = probe(store, key, made->last_modified);
    if (!found || !found->honoured) {
        // The object is gone already if the store ignored the conditions.
        static_cast<void>(wait_for<void>([&](auto done) { store.remove(key, done); }));
    }
    return found;
}

}  // namespace

bool DeleteConditions::honoured() {
    {
        const MutexLock lock(mutex_);
        if (known_ != Known::kNothing || clock_.now() < not_before_) {
            return known_ == Known::kHonoured;
        }
        known_ = Known::kAsking;
    }
    blocking_.post([self = shared_from_this()] { self->ask(); });
    return false;
}

bool DeleteConditions::dates_agree() const {
    const MutexLock lock(mutex_);
    return dates_agree_;
}

bool DeleteConditions::is_asking() const {
    const MutexLock lock(mutex_);
    return known_ == Known::kAsking;
}

void DeleteConditions::when_idle(std::function<void()> run) {
    {
        const MutexLock lock(mutex_);
        if (known_ == Known::kAsking) {
            waiting_.push_back(std::move(run));
            return;
        }
    }
    run();
}

DeletePins DeleteConditions::pins() const {
    switch (known_) {
        case Known::kHonoured:
            return DeletePins::kHonoured;
        case Known::kIgnored:
            return DeletePins::kIgnored;
        case Known::kNothing:
        case Known::kAsking:
            return DeletePins::kUnknown;
    }
    return DeletePins::kUnknown;
}

DeletePins DeleteConditions::find_out() {
    {
        const MutexLock lock(mutex_);
        const bool is_known = known_ == Known::kHonoured || known_ == Known::kIgnored;
        if (is_known || (known_ == Known::kNothing && clock_.now() < not_before_)) {
            return pins();
        }
        if (known_ == Known::kNothing) {
            known_ = Known::kAsking;
        }
    }
    // Asks even if another thread is to ask: that one may be waiting for this one.
    ask();
    const MutexLock lock(mutex_);
    return pins();
}

void DeleteConditions::ask() {
    {
        const MutexLock lock(mutex_);
        if (known_ != Known::kAsking) {
            // Another thread has asked meanwhile.
            return;
        }
    }
    const Result<Found> found = probe_once(store_, prefix_ + std::string(kTemporaryPrefix) + random_uuid());
    std::vector<std::function<void()>> waiting;
    {
        const MutexLock lock(mutex_);
        if (known_ != Known::kAsking) {
            return;
        }
        waiting.swap(waiting_);
        if (found) {
            known_ = found->honoured ? Known::kHonoured : Known::kIgnored;
            dates_agree_ = found->dates_agree;
        } else {
            known_ = Known::kNothing;
            not_before_ = clock_.now() + kAskAgainAfter;
        }
    }
    if (!found) {
        log_warning(
            escaped("cannot tell whether the store honours conditional deletes; names are removed one by one: " +
                    found.error().message));
    } else if (!found->honoured) {
        log_warning(
            "the store ignores conditional deletes (If-Match): names are removed one by one, each in a round trip; a "
            "request that the network delivers late can remove what another mount has written since");
    } else if (!found->dates_agree) {
        log_warning(
            "the store dates objects by another clock than its answers: where another mount has written a name that is "
            "removed here in a batch, it is not known which came first; that version stays, and the next fsync(2) of "
            "the directory fails");
    }
    for (const std::function<void()>& run : waiting) {
        run();
    }
}

}  // namespace ckptfs::fs
