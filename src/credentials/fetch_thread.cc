// SPDX-License-Identifier: Apache-2.0
#include "credentials/fetch_thread.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/text.h"
#include "base/thread.h"

namespace ckptfs {
namespace {

// Enough for a source that heeds a stop.
constexpr Milliseconds kEndsWithin{5'000};

}  // namespace

struct FetchThread::State {
    State(std::shared_ptr<CredentialSource> its_source, Milliseconds its_longest)
        : source(std::move(its_source)), longest(its_longest) {}

    void run() {
        MutexLock lock(mutex);
        while (true) {
            changed.wait(lock, [this]() REQUIRES(mutex) { return stopping || is_under_way; });
            if (stopping) {
                break;
            }
            lock.unlock();
            Result<SharedCredentials> fetched = source->fetch(stop.get_token());
            lock.lock();
            answer = std::move(fetched);
            is_under_way = false;
            changed.notify_all();
        }
        has_ended = true;
        changed.notify_all();
    }

    const std::shared_ptr<CredentialSource> source;
    const Milliseconds longest;
    std::stop_source stop;

    Mutex mutex;
    Condition changed;
    bool is_under_way GUARDED_BY(mutex) = false;
    std::optional<Result<SharedCredentials>> answer GUARDED_BY(mutex);
    bool stopping GUARDED_BY(mutex) = false;
    bool has_ended GUARDED_BY(mutex) = false;
};

FetchThread::FetchThread(std::shared_ptr<CredentialSource> source, Milliseconds longest)
    : state_(std::make_shared<State>(std::move(source), longest)),
      thread_(start_thread("fetch-keys", [state = state_] { state->run(); })) {}

FetchThread::~FetchThread() {
    stop();
    bool has_ended = false;
    {
        State& state = *state_;
        MutexLock lock(state.mutex);
        has_ended = state.changed.wait_for(lock, std::min(kEndsWithin, state.longest),
                                           [&state]() REQUIRES(state.mutex) { return state.has_ended; });
    }
    if (has_ended) {
        thread_.join();
    } else {
        thread_.detach();
    }
}

void FetchThread::stop() {
    state_->stop.request_stop();
    const MutexLock lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
}

Result<SharedCredentials> FetchThread::fetch() {
    State& state = *state_;
    MutexLock lock(state.mutex);
    if (!state.is_under_way && !state.answer) {
        state.is_under_way = true;
        state.changed.notify_all();
    }
    state.changed.wait_for(lock, state.longest,
                           [&state]() REQUIRES(state.mutex) { return state.answer || state.stopping; });
    if (state.stopping) {
        return failure(ECANCELED, "the lookup of credentials was canceled");
    }
    if (!state.answer) {
        return failure(ETIMEDOUT,
                       format("no credentials within {} s: look whether the file system hangs that has the home "
                              "directory, or the program that gives them",
                              std::chrono::duration_cast<std::chrono::seconds>(state.longest).count()));
    }
    return *std::exchange(state.answer, std::nullopt);
}

}  // namespace ckptfs
