// SPDX-License-Identifier: Apache-2.0
// Signs, sends, and sends again: the attempts of all S3 operations of a mount.
//
// At most as many requests are under way as the store has shown that it tolerates (halved by 503, raised again by
// success); the others wait, first come, first served, but those that failed before go first; those that carry almost
// no data have reserved places. An operation is given up when no byte has moved for retry_for; time in the queue does
// not count, nor does the time in which a body moved before it broke off. The first reply after an outage brings the
// next attempts of other requests forward, unless the store asked them to slow down. A read that is late compared with
// others of its size is ended and sent again on another connection (late_reads.h).
//
// request_sender_recovery.cc has what follows a failure, request_sender_reads.cc late reads.
//
// Ownership: the dependencies outlive the sender. Held by shared_ptr, since timers and transfers may outlast stop().
// Threads: all functions may be called from any thread. Callbacks run without locks on an HTTP, timer or executor
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "aws/clock_correction.h"
#include "aws/credentials.h"
#include "base/mutex.h"
#include "base/retry.h"
#include "ckptfs/clock.h"
#include "ckptfs/config.h"
#include "ckptfs/executor.h"
#include "ckptfs/http.h"
#include "s3/attempt.h"
#include "s3/call.h"
#include "s3/endpoint.h"
#include "s3/error_table.h"
#include "s3/late_reads.h"
#include "s3/request_queue.h"
#include "s3/store_habits.h"

namespace ckptfs::s3 {

struct S3Dependencies {
    HttpTransport& transport;
    Timer& timer;
    const Clock& clock;
    Executor& executor;
    CredentialsProvider& credentials;
    // In [0, 1); called under a lock.
    std::function<double()> random;
    // Notified of every attempt, on the thread where it ends.
    std::vector<AttemptObserver*> observers{};
};

struct S3Statistics {
    std::uint64_t requests = 0;
    std::uint64_t retries = 0;
    std::uint64_t slow_downs = 0;
    // Reads that were sent again on another connection.
    std::uint64_t late_reads = 0;
    std::uint64_t in_flight = 0;
    std::uint64_t waiting = 0;
    int concurrency_limit = 0;
    // The last error that was retried or reported; empty for none.
    std::string last_error;
};

class RequestSender : public std::enable_shared_from_this<RequestSender> {
public:
    RequestSender(const StoreConfig& config, Endpoint endpoint, S3Dependencies dependencies);
    RequestSender(const RequestSender&) = delete;
    RequestSender& operator=(const RequestSender&) = delete;

    // call->done is called exactly once and then dropped, unless call->before_retry takes the call back, together with
    // it.
    void send(const SharedCall& call);
    // Continues a call that ended because its outcome was unknown, as if the reply had just been `error`; the caller
    // has set call->done again.
    void resume(const SharedCall& call, Error error);
    // Completes everything with ECANCELED and waits for it; must not be called from a callback.
    void stop();
    [[nodiscard]] S3Statistics statistics() const;
    // As in ObjectStore.
    [[nodiscard]] int slowed_to() const { return slowed_to_; }
    [[nodiscard]] StoreHabits& habits() { return habits_; }
    // The store accepts DeleteObjects only with Content-MD5.
    void found_deletes_want_md5() { deletes_want_md5_ = true; }
    [[nodiscard]] bool deletes_want_md5() const { return deletes_want_md5_; }
    [[nodiscard]] const std::string& bucket() const { return bucket_; }

private:
    // Each wait has a number of its own, so that the timer of a wait that was cut short does not end the call's next
    // one.
    using WaitNumber = std::uint64_t;
    struct Delayed {
        SharedCall call;
        SteadyTime until{};
        bool told_to_slow_down = false;
    };

    [[nodiscard]] bool enter();
    void leave();
    [[nodiscard]] bool needs_executor(const Call& call) const;
    void compute(Call& call) const;
    void enqueue(const SharedCall& call);
    void pump();
    void begin(const SharedCall& call);
    void send_attempt(const SharedCall& call, Result<SharedCredentials> credentials);
    [[nodiscard]] HttpRequest attempt_request(const SharedCall& call);

    void on_answer(const SharedCall& call, int attempt, Result<HttpResponse> answer);
    void settle(const SharedCall& call, int attempt, Result<HttpResponse> outcome);
    void release_slot(const SharedCall& call, const Result<HttpResponse>& outcome);

    void leave_out_time_that_moved(const Call& call, const Error& error) const;
    void recover(const SharedCall& call, Error error);
    void refresh_credentials(const SharedCall& call, Error error);
    void correct_clock(const SharedCall& call, Error error);
    void retry_later(const SharedCall& call, Error error);
    // The limit for a reply that is not passed to on_body.
    [[nodiscard]] Milliseconds longest_answer() const;
    void retry_now(const SharedCall& call);
    void send_once_more(const SharedCall& call);
    void arm(WaitNumber wait, Milliseconds delay) REQUIRES(mutex_);
    void end_outage(SteadyTime now) REQUIRES(mutex_);
    // A store that fails is worth a log line now and then, long before its requests are given up.
    [[nodiscard]] bool is_worth_a_line(Milliseconds failing_for, SteadyTime now) REQUIRES(mutex_);
    void wake_delayed(WaitNumber wait);
    void finish(const SharedCall& call, Result<HttpResponse> outcome);
    [[nodiscard]] Error canceled(const Call& call) const;
    [[nodiscard]] Error no_longer_wanted(const Call& call) const;

    void watch_reads() REQUIRES(mutex_);
    void look_for_late_reads();
    void note_read(const Call& call, const Result<HttpResponse>& outcome) REQUIRES(mutex_);
    // True if the attempt was ended by look_for_late_reads(), to be made again.
    [[nodiscard]] static bool was_late(const Call& call, const Error& error);

    // Dependencies.
    HttpTransport& transport_;
    Timer& timer_;
    const Clock& clock_;
    Executor& executor_;
    CredentialsProvider& credentials_;
    const std::function<double()> random_;
    const std::vector<AttemptObserver*> observers_;

    // Constant.
    const std::string bucket_;
    const Endpoint endpoint_;
    const bool unsigned_payload_;
    const bool anonymous_;
    const Milliseconds stall_timeout_;
    const RetryPolicy policy_;

    StoreHabits habits_;
    std::atomic<int> slowed_to_{0};
    std::atomic<bool> deletes_want_md5_ = false;
    ClockCorrection store_clock_;

    mutable Mutex mutex_;
    Condition idle_;
    RequestQueue queue_ GUARDED_BY(mutex_);
    std::unordered_map<WaitNumber, Delayed> delayed_ GUARDED_BY(mutex_);
    WaitNumber last_wait_ GUARDED_BY(mutex_) = 0;
    // Time of the first failure after the last reply for which shows_a_store() was true.
    std::optional<SteadyTime> failing_since_ GUARDED_BY(mutex_);
    std::unordered_map<Call*, HttpTransport::Id> active_ GUARDED_BY(mutex_);
    std::uint64_t outstanding_ GUARDED_BY(mutex_) = 0;
    LateReads late_reads_ GUARDED_BY(mutex_);
    bool watches_reads_ GUARDED_BY(mutex_) = false;
    bool pumping_ GUARDED_BY(mutex_) = false;
    bool stopping_ GUARDED_BY(mutex_) = false;
    // The credentials of the last request that succeeded.
    SharedCredentials accepted_credentials_ GUARDED_BY(mutex_);
    std::optional<SteadyTime> told_at_ GUARDED_BY(mutex_);
    bool outage_was_told_ GUARDED_BY(mutex_) = false;
    S3Statistics statistics_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::s3
