// SPDX-License-Identifier: Apache-2.0
// Credentials of a source, fetched again in the background before they expire.
//
// Those that are held are used for as long as they are valid, also while the source fails; get() waits only where there
// are none, or where the store has refused them. One fetch is under way at most, on a thread of its own, and a source
// that fails, or that gives again what was refused, is left alone for a while: meanwhile get() answers with what is
// held, else with its last error. The store decides whether it takes them by now.
//
// Threads: as CredentialsProvider says; `ready` runs without locks, where get() was called or on the provider's thread.
// The destructor stops.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "aws/credentials.h"
#include "ckptfs/clock.h"
#include "credentials/refresh_policy.h"
#include "credentials/source.h"

namespace ckptfs {

class RefreshingProvider final : public CredentialsProvider {
public:
    // `clock` outlives the provider; `random` gives numbers in [0, 1).
    RefreshingProvider(std::unique_ptr<CredentialSource> source, const Clock& clock, std::function<double()> random);
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
    // With mutex_ held.
    [[nodiscard]] bool holds_valid() const;
    [[nodiscard]] bool holds_usable() const;
    [[nodiscard]] bool is_paused() const;
    [[nodiscard]] bool is_fetch_due() const;
    [[nodiscard]] Milliseconds time_to_refresh() const;
    [[nodiscard]] std::string validity() const;
    void keep(SharedCredentials fetched);
    void count_failure(Error error);

    const std::unique_ptr<CredentialSource> source_;
    const Clock& clock_;

    std::stop_source stop_;

    std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by mutex_.
    std::function<double()> random_;
    std::string source_name_;
    SharedCredentials held_;
    std::optional<RefreshTimes> times_;
    std::vector<CredentialsReady> waiting_;
    bool has_succeeded_ = false;
    bool has_accepted_ = false;
    bool stopping_ = false;
    // The store has refused what is held.
    bool refused_ = false;
    // Fetches for that reason, since a request was last accepted.
    int refusals_ = 0;
    int failures_ = 0;
    SteadyTime paused_until_{};
    Error last_error_;

    // Last, so that everything above exists before it runs.
    std::thread thread_;
};

}  // namespace ckptfs
