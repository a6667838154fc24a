// SPDX-License-Identifier: Apache-2.0
// One HTTP thread: a libcurl multi handle driven by epoll.
//
// libcurl's own poll asks every connection on every turn; with epoll only those that are ready cost anything.
// Threads: enqueue(), cancel() and in_flight() may be called from any thread; everything else happens on the loop's
// own thread. The destructor completes all transfers with ECANCELED and joins; transfers enqueued by their callbacks
// meanwhile are canceled too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "ckptfs/http.h"
#include "ckptfs/status.h"
#include "http/collected_body.h"
#include "http/curl_handles.h"
#include "http/curl_transport.h"
#include "http/known_addresses.h"
#include "http/rate_judge.h"
#include "http/transfer.h"

namespace ckptfs {

// What all loops of a transport have seen, and share.
struct SharedKnowledge {
    explicit SharedKnowledge(std::size_t most_collected) : bodies(most_collected) {}

    Mutex mutex;
    RateJudge up GUARDED_BY(mutex);
    RateJudge down GUARDED_BY(mutex);

    KnownAddresses addresses;
    CollectedBodies bodies;
};

class CurlLoop {
public:
    // `known` outlives the loop.
    static Result<std::unique_ptr<CurlLoop>> create(const CurlTransportOptions& options, int max_connections,
                                                    SharedKnowledge& known);
    ~CurlLoop();
    CurlLoop(const CurlLoop&) = delete;
    CurlLoop& operator=(const CurlLoop&) = delete;

    void enqueue(std::unique_ptr<Transfer> transfer);
    void cancel(HttpTransport::Id id);
    // Ends the thread; later transfers are canceled on their caller's thread.
    void stop();
    // Transfers accepted and not yet completed.
    [[nodiscard]] std::uint64_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
    [[nodiscard]] const TransferCounters& counters() const { return counters_; }

private:
    struct Inbox {
        std::deque<std::unique_ptr<Transfer>> transfers;
        std::vector<HttpTransport::Id> canceled;
        bool stopping = false;
    };

    CurlLoop(const CurlTransportOptions& options, int max_connections, SharedKnowledge& known);
    Status open();
    static int on_socket(CURL* easy, curl_socket_t socket, int what, void* self, void* known);
    static int on_timer(CURLM* multi, long timeout_ms, void* self);

    void run();
    // False once the loop is to stop.
    bool take_inbox();
    void cancel_now(HttpTransport::Id id);
    void start_waiting();
    void start(std::unique_ptr<Transfer> transfer);
    void act_on_timeout();
    void try_next_addresses();
    void wait_for_events();
    void finish_completed();
    void end_stalled();
    void end_crawling(SteadyTime now);
    void count_rate(const Transfer& ended);
    void cancel_all();
    std::unique_ptr<Transfer> detach(HttpTransport::Id id);
    // Runs the transfer's callback by `end`, and keeps its handle for reuse.
    template <class End>
    void conclude(std::unique_ptr<Transfer> transfer, End end);
    [[nodiscard]] int wait_milliseconds() const;
    void wake() const;

    const CurlTransportOptions options_;
    const int max_connections_;
    SharedKnowledge& known_;

    CurlMulti multi_;
    FileDescriptor epoll_;
    FileDescriptor wakeup_;

    // Loop thread only.
    std::deque<std::unique_ptr<Transfer>> waiting_;
    std::unordered_map<HttpTransport::Id, std::unique_ptr<Transfer>> active_;
    std::vector<CurlEasy> idle_handles_;
    // Transfers that lost a socket before their request was sent.
    std::vector<HttpTransport::Id> connecting_anew_;
    SteadyTime curl_due_ = SteadyTime::max();
    SteadyTime progress_due_ = SteadyTime::max();

    TransferCounters counters_;
    std::atomic<std::uint64_t> in_flight_{0};

    Mutex mutex_;
    Inbox inbox_ GUARDED_BY(mutex_);
    // No transfer is accepted any more.
    bool closed_ GUARDED_BY(mutex_) = false;

    std::thread thread_;
};

}  // namespace ckptfs
