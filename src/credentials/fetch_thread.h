// SPDX-License-Identifier: Apache-2.0
// A source of credentials on a thread of its own, which may hang where no limit reaches: in a file system whose server
// is away, or in the start of a program that lies there.
//
// Ownership: the source, and what it is made of (SourceContext), outlive the thread, except a thread that still hangs
// when this is destroyed: it is left behind, because a process that waits for it would never end. That is for the end
// of the process. Threads: fetch() is called by one at a time, stop() from any.
#pragma once

#include <memory>
#include <thread>

#include "ckptfs/clock.h"
#include "credentials/source.h"

namespace ckptfs {

class FetchThread {
public:
    // `longest`: the longest wait for credentials, and, up to 5 s, for the thread's end after a stop.
    FetchThread(std::shared_ptr<CredentialSource> source, Milliseconds longest);
    ~FetchThread();
    FetchThread(const FetchThread&) = delete;
    FetchThread& operator=(const FetchThread&) = delete;

    // ETIMEDOUT if no credentials have come by then; the next call waits for the same fetch. ECANCELED soon after
    // stop().
    Result<SharedCredentials> fetch();
    void stop();

private:
    struct State;

    const std::shared_ptr<State> state_;
    std::thread thread_;
};

}  // namespace ckptfs
