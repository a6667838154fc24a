// SPDX-License-Identifier: Apache-2.0
#include "credentials/refreshing_provider.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text.h"
#include "base/thread.h"
#include "ckptfs/log.h"

namespace ckptfs {
namespace {

// The wall clock may be set, and machines are suspended: it is checked this often.
constexpr Milliseconds kLookEvery{std::chrono::minutes(1)};
constexpr Milliseconds kShortestWait{1};

Error stopped() {
    Error error;
    error.errno_value = ECANCELED;
    error.message = "the lookup of credentials was canceled";
    return error;
}

}  // namespace

RefreshingProvider::RefreshingProvider(std::shared_ptr<CredentialSource> source, const Clock& clock,
                                       std::function<double()> random, Milliseconds longest_fetch)
    : source_(std::move(source)), clock_(clock), fetch_thread_(source_, longest_fetch), random_(std::move(random)) {
    thread_ = start_thread("credentials", [this] { run(); });
}

RefreshingProvider::~RefreshingProvider() {
    stop();
    thread_.join();
}

void RefreshingProvider::stop() {
    fetch_thread_.stop();
    const MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
}

void RefreshingProvider::get(CredentialsReady ready) {
    Result<SharedCredentials> answer;
    {
        const MutexLock lock(mutex_);
        if (stopping_) {
            answer = failure(stopped());
        } else if (holds_usable()) {
            answer = held_;
            if (is_fetch_due()) {
                changed_.notify_all();
            }
        } else if (is_paused() && failures_ > 0) {
            answer = failure(last_error_);
        } else {
            waiting_.push_back(std::move(ready));
            changed_.notify_all();
            return;
        }
    }
    ready(std::move(answer));
}

void RefreshingProvider::refuse(const SharedCredentials& credentials) {
    const MutexLock lock(mutex_);
    refused_ = refused_ || held_ == credentials;
}

void RefreshingProvider::accept(const SharedCredentials& credentials) {
    const MutexLock lock(mutex_);
    has_accepted_ = true;
    if (held_ == credentials) {
        refusals_ = 0;
    }
}

bool RefreshingProvider::has_accepted() {
    const MutexLock lock(mutex_);
    return has_accepted_;
}

std::string RefreshingProvider::source() {
    const MutexLock lock(mutex_);
    return source_name_;
}

bool RefreshingProvider::holds_valid() const {
    return held_ && (!times_ || clock_.wall_now() < times_->trusted);
}

bool RefreshingProvider::holds_usable() const {
    return holds_valid() && (!refused_ || is_paused());
}

bool RefreshingProvider::is_paused() const {
    return clock_.now() < paused_until_;
}

bool RefreshingProvider::is_fetch_due() const {
    const bool expires_soon = held_ && times_ && clock_.wall_now() >= times_->refresh;
    return !waiting_.empty() || (expires_soon && !is_paused());
}

Milliseconds RefreshingProvider::time_to_refresh() const {
    if (!held_ || !times_) {
        return kLookEvery;
    }
    const auto to_refresh = std::chrono::ceil<Milliseconds>(times_->refresh - clock_.wall_now());
    const auto to_end_of_pause = std::chrono::ceil<Milliseconds>(paused_until_ - clock_.now());
    return std::clamp(std::max(to_refresh, to_end_of_pause), kShortestWait, kLookEvery);
}

void RefreshingProvider::run() {
    MutexLock lock(mutex_);
    while (!stopping_) {
        if (!is_fetch_due()) {
            changed_.wait_for(lock, time_to_refresh());
            continue;
        }
        lock.unlock();
        Result<SharedCredentials> fetched = fetch_thread_.fetch();
        lock.lock();
        if (stopping_) {
            break;
        }
        if (fetched) {
            keep(*fetched);
        } else {
            count_failure(std::move(fetched.error()));
        }
        const std::vector<CredentialsReady> answered = std::exchange(waiting_, {});
        const Result<SharedCredentials> answer =
            failures_ == 0 ? Result<SharedCredentials>(held_) : failure(last_error_);
        lock.unlock();
        for (const CredentialsReady& ready : answered) {
            ready(answer);
        }
        lock.lock();
    }
    const std::vector<CredentialsReady> dropped = std::exchange(waiting_, {});
    lock.unlock();
    for (const CredentialsReady& ready : dropped) {
        ready(failure(stopped()));
    }
}

void RefreshingProvider::keep(SharedCredentials fetched) {
    if (std::exchange(failures_, 0) > 0 && has_succeeded_) {
        log_info(format("credentials were renewed by {}", source_->name()));
    }
    const bool gave_the_same = held_ && fetched && *held_ == *fetched;
    const bool was_refused = std::exchange(refused_, false);
    held_ = std::move(fetched);
    source_name_ = source_->name();
    times_ = held_ ? refresh_times(held_->expires, clock_.wall_now(), random_()) : std::nullopt;
    has_succeeded_ = true;
    paused_until_ = {};
    if (was_refused) {
        paused_until_ = clock_.now() + pause_after_refusals(++refusals_, gave_the_same, random_());
    }
}

std::string RefreshingProvider::validity() const {
    if (!holds_valid() || !times_) {
        return {};
    }
    const auto left = std::chrono::duration_cast<std::chrono::seconds>(times_->trusted - clock_.wall_now());
    return format(", while the credentials that are held are valid for {} s more", left.count());
}

// A source that has worked before is expected to work again: its service comes back, or the user logs in again.
void RefreshingProvider::count_failure(Error error) {
    ++failures_;
    paused_until_ = clock_.now() + pause_after_failures(failures_, random_());
    error.retryable = error.retryable || has_succeeded_;
    if (failures_ == 1 && has_succeeded_) {
        log_warning(format("{}; retrying{}", escaped(error.message), validity()));
    }
    last_error_ = std::move(error);
}

}  // namespace ckptfs
