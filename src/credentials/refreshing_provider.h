// SPDX-License-Identifier: Apache-2.0
// Credentials of a source, fetched again in the background before they expire.
//
// Credentials that are held are used for as long as they are valid, also while the source fails; get() waits only if
// there are none, or if the store has refused them. One fetch is under way at most, on a thread of its own, and a
// source that fails, or that returns again what was refused, is left alone for a while: meanwhile get() returns what is
// held, and the store decides whether it accepts that by now. If nothing valid is held any more, get() returns the
// error of a source that fails; a source that only returned the same again is asked.
//
// Threads: as CredentialsProvider says; `ready` runs without locks, where get() was called or on the provider's thread.
// The destructor stops. A source that hangs is an error once `longest_fetch` has passed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "aws/credentials.h"
#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "credentials/fetch_thread.h"
#include "credentials/refresh_policy.h"
#include "credentials/source.h"

namespace ckptfs {

class RefreshingProvider final : public CredentialsProvider {
public:
    // `clock` outlives the provider; `random` gives numbers in [0, 1).
    // `longest_fetch`: more than programs, which get a minute, and the few attempts at a service take.
    RefreshingProvider(std::shared_ptr<CredentialSource> source, const Clock& clock, std::function<double()> random,
                       Milliseconds longest_fetch = std::chrono::minutes(3));
    ~RefreshingProvider() override;
    RefreshingProvider(const RefreshingProvider&) = delete;
    RefreshingProvider& operator=(const RefreshingProvider&) = delete;

    void get(CredentialsReady ready) override;
    void refuse(const SharedCredentials& credentials) override;
    void accept(const SharedCredentials& credentials) override;
    [[nodiscard]] bool has_accepted() override;
    [[nodiscard]] std::string source() override;
    void stop() override;

private:
    void run();
    [[nodiscard]] bool holds_valid() const REQUIRES(mutex_);
    [[nodiscard]] bool holds_usable() const REQUIRES(mutex_);
    [[nodiscard]] bool is_paused() const REQUIRES(mutex_);
    [[nodiscard]] bool is_fetch_due() const REQUIRES(mutex_);
    [[nodiscard]] Milliseconds time_to_refresh() const REQUIRES(mutex_);
    [[nodiscard]] std::string validity() const REQUIRES(mutex_);
    void keep(SharedCredentials fetched) REQUIRES(mutex_);
    void count_failure(Error error) REQUIRES(mutex_);

    const std::shared_ptr<CredentialSource> source_;
    const Clock& clock_;
    FetchThread fetch_thread_;

    Mutex mutex_;
    Condition changed_;
    std::function<double()> random_ GUARDED_BY(mutex_);
    std::string source_name_ GUARDED_BY(mutex_);
    SharedCredentials held_ GUARDED_BY(mutex_);
    std::optional<RefreshTimes> times_ GUARDED_BY(mutex_);
    std::vector<CredentialsReady> waiting_ GUARDED_BY(mutex_);
    bool has_succeeded_ GUARDED_BY(mutex_) = false;
    bool has_accepted_ GUARDED_BY(mutex_) = false;
    bool stopping_ GUARDED_BY(mutex_) = false;
    // Whether the store has refused what is held.
    bool refused_ GUARDED_BY(mutex_) = false;
    // Fetches after a refusal, since a request was last accepted.
    int refusals_ GUARDED_BY(mutex_) = 0;
    // Fetches that failed since the last one that succeeded; last_error_ is that of the latest.
    int failures_ GUARDED_BY(mutex_) = 0;
    SteadyTime paused_until_ GUARDED_BY(mutex_){};
    Error last_error_ GUARDED_BY(mutex_);

    // Last, so that everything above exists before it runs.
    std::thread thread_;
};

}  // namespace ckptfs
