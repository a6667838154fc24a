// SPDX-License-Identifier: Apache-2.0
// The store as the options describe it, with its connections and credentials.
//
// Threads: used by one thread; the store itself by any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "aws/credentials.h"
#include "ckptfs/clock.h"
#include "ckptfs/config.h"
#include "ckptfs/executor.h"
#include "ckptfs/http.h"
#include "ckptfs/status.h"
#include "s3/access_log.h"
#include "s3/endpoint.h"
#include "s3/request_statistics.h"
#include "s3/s3_store.h"
#include "s3/store_clock.h"

namespace ckptfs {

class StoreClient {
public:
    // The arguments outlive the client. `observer`: also notified of every attempt; may be null.
    static Result<std::unique_ptr<StoreClient>> create(const StoreConfig& config, Timer& timer, Clock& clock,
                                                       Executor& executor, s3::AttemptObserver* observer = nullptr);

    [[nodiscard]] s3::S3Store& store() const { return *store_; }
    // The transport of all stores made here.
    [[nodiscard]] HttpTransport& transport() const { return *transport_; }
    // Where the stores of this configuration send their requests.
    [[nodiscard]] static Result<s3::Endpoint> endpoint(const StoreConfig& config);
    // Where the credentials come from, for a person: "the environment".
    [[nodiscard]] std::string credentials_source() const { return credentials_->source(); }
    // Another store over the same connections; must not outlive this one.
    [[nodiscard]] Result<std::unique_ptr<s3::S3Store>> make_store(const StoreConfig& config);
    // The store's time, once the store has replied; until then this machine's.
    [[nodiscard]] Clock& clock() { return store_clock_; }
    [[nodiscard]] const Clock& clock() const { return store_clock_; }
    // Statistics of all stores made here.
    [[nodiscard]] std::vector<s3::OperationStatistics> operations() const { return statistics_.operations(); }
    // Ends what is under way with ECANCELED, and waits for it; must not be called from a callback.
    void stop();

private:
    StoreClient(Timer& timer, Clock& clock, Executor& executor)
        : timer_(timer), clock_(clock), executor_(executor), store_clock_(clock) {}

    Timer& timer_;
    Clock& clock_;
    Executor& executor_;
    // Notified of attempts until the stores have stopped.
    s3::RequestStatistics statistics_;
    s3::StoreClock store_clock_;
    s3::AttemptObserver* observer_ = nullptr;
    std::unique_ptr<s3::AccessLog> access_log_;
    std::unique_ptr<HttpTransport> transport_;
    std::unique_ptr<CredentialsProvider> credentials_;
    std::unique_ptr<s3::S3Store> store_;
};

}  // namespace ckptfs
