// SPDX-License-Identifier: Apache-2.0
#include "s3/copy_condition.h"

#include <string>

#include "base/text.h"
#include "ckptfs/log.h"
#include "s3/call.h"
#include "s3/version_pin.h"
#include "s3/xml.h"

namespace ckptfs::s3 {
namespace {

// An ETag like those of multipart uploads, which some stores evaluate differently from kWrongETag.
constexpr const char* kWrongETagInParts = "\"00000000000000000000000000000000-1\"";

bool is_judged(const Error& error) {
    return is_condition_failed(error) || is_not_implemented(error);
}

bool is_out_of_reach(const Error& error) {
    return error.retryable || error.http_status == 0;
}

UploadPartCopyRequest with_wrong_etag(UploadPartCopyRequest request) {
    const bool in_parts = request.source_if_match.find('-') != std::string::npos;
    request.source_if_match = in_parts ? kWrongETagInParts : kWrongETag;
    return request;
}

}  // namespace

void CopyCondition::find_out(UploadPartCopyRequest request, std::function<void(Status)> found) {
    bool is_known = false;
    bool is_ignored = false;
    {
        const MutexLock lock(mutex_);
        is_ignored = is_ignored_;
        if (known_ == Known::kAsking) {
            waiting_.push_back({std::move(request), std::move(found)});
            return;
        }
        is_known = known_ == Known::kYes;
        if (!is_known) {
            known_ = Known::kAsking;
        }
    }
    if (is_known) {
        if (is_ignored) {
            // A copy that was sent with the condition before has succeeded since.
            learn_that_it_is_ignored();
        }
        found({});
    } else {
        ask({std::move(request), std::move(found)});
    }
}

void CopyCondition::ask(Waiting first) {
    auto call = std::make_shared<Call>();
    call->request = upload_part_copy_request(defaults_, with_wrong_etag(std::move(first.request)));
    call->stall_timeout_factor = kSlowAnswerFactor;
    // A 200 may come before an error does.
    call->accept = [](const HttpResponse& response) -> Status {
        const auto written = parse_copy_result(response.body);
        return written ? Status{} : failure(written.error());
    };
    call->done = [self = shared_from_this(), found = std::move(first.found)](const Result<HttpResponse>& outcome) {
        self->answered(outcome, found);
    };
    sender_->send(call);
}

void CopyCondition::answered(const Result<HttpResponse>& outcome, const std::function<void(Status)>& found) {
    const bool is_known = outcome || is_judged(outcome.error());
    if (outcome) {
        learn_that_it_is_ignored();
    }
    std::vector<Waiting> waiting;
    {
        const MutexLock lock(mutex_);
        known_ = is_known ? Known::kYes : Known::kNo;
        is_ignored_ = outcome.has_value();
        waiting.swap(waiting_);
    }
    if (!is_known && is_out_of_reach(outcome.error())) {
        found(failure(outcome.error()));
        // The others have waited as long.
        for (const Waiting& each : waiting) {
            each.found(failure(outcome.error()));
        }
        return;
    }
    // An error about this source or this upload is left to the copy itself to report; the next copy asks again.
    found({});
    for (Waiting& each : waiting) {
        find_out(std::move(each.request), std::move(each.found));
    }
}

void CopyCondition::learn_that_it_is_ignored() const {
    for (const char* etag : {kWrongETag, kWrongETagInParts}) {
        // StoreHabits relies on what it has seen twice.
        for (int seen = 0; seen < 2; ++seen) {
            static_cast<void>(sender_->habits().took(condition_kind(kSourceIfMatch, "UploadPartCopy", etag),
                                                     SentCondition::kNotAtAll));
        }
    }
    if (sender_->habits().note(kSourceIfMatch)) {
        log_warning(
            format("the store ignores {} of UploadPartCopy: checking the version with HEAD before and after each part "
                   "that is copied",
                   kSourceIfMatch));
    }
}

}  // namespace ckptfs::s3
