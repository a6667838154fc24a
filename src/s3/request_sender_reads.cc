// SPDX-License-Identifier: Apache-2.0
// Reads that are late: see s3/late_reads.h.
#include <chrono>
#include <vector>

#include "s3/late_reads.h"
#include "s3/request_sender.h"

namespace ckptfs::s3 {
namespace {

// A part of LateReads::kLeastPatience.
constexpr Milliseconds kLookEvery{50};
// A read that hangs on every connection is left to --stall-timeout and --retry-for.
constexpr int kMostTimesLate = 3;

}  // namespace

void RequestSender::watch_reads() {
    if (watches_reads_ || stopping_) {
        return;
    }
    watches_reads_ = true;
    timer_.after(kLookEvery, [weak = weak_from_this()] {
        if (const auto self = weak.lock()) {
            self->look_for_late_reads();
        }
    });
}

void RequestSender::look_for_late_reads() {
    // The transport outlives what stop() waits for.
    if (!enter()) {
        return;
    }
    std::vector<HttpTransport::Id> late;
    {
        const MutexLock lock(mutex_);
        watches_reads_ = false;
        const SteadyTime now = clock_.now();
        bool any = false;
        for (const auto& [call, id] : active_) {
            if (!call->kind || call->late_attempt == call->attempt || call->times_late == kMostTimesLate) {
                continue;
            }
            any = true;
            const auto since = std::chrono::duration_cast<Milliseconds>(now - call->sent_at);
            if (late_reads_.has_allowance() && late_reads_.is_late(*call->kind, since)) {
                late_reads_.ask_again();
                call->late_attempt = call->attempt;
                ++call->times_late;
                ++statistics_.late_reads;
                late.push_back(id);
            }
        }
        if (any) {
            watch_reads();
        }
    }
    for (const HttpTransport::Id id : late) {
        transport_.cancel(id);
    }
    leave();
}

void RequestSender::note_read(const Call& call, const Result<HttpResponse>& outcome) {
    if (outcome && call.kind) {
        late_reads_.answered(*call.kind, std::chrono::duration_cast<Milliseconds>(clock_.now() - call.sent_at));
    }
}

// A call that its caller has canceled, too, is canceled again by the next reply.
bool RequestSender::was_late(const Call& call, const Error& error) {
    return call.late_attempt == call.attempt && error.errno_value == ECANCELED;
}

}  // namespace ckptfs::s3
