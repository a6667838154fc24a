// SPDX-License-Identifier: Apache-2.0
#include "s3/version_pin.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "s3/error_table.h"
#include "s3/head_operation.h"

namespace ckptfs {
namespace {

std::string without_quotes(std::string_view etag) {
    const bool quoted = etag.size() >= 2 && etag.front() == '"' && etag.back() == '"';
    return std::string(quoted ? etag.substr(1, etag.size() - 2) : etag);
}

}  // namespace

bool VersionPin::may_be_misjudged(const Error& error) const {
    return sent_ != Sent::kNotAtAll &&
           (error.http_status == 412 || error.s3_code == "PreconditionFailed" || error.s3_code == "NotImplemented");
}

void VersionPin::look(const SharedCall& call, std::function<void(bool again)> decided) {
    head_object(sender_, key_, call->retry,
                [self = shared_from_this(), call, decided = std::move(decided)](const Result<ObjectInfo>& object) {
                    const bool is_there = object && without_quotes(object->etag) == without_quotes(self->etag_);
                    if (is_there) {
                        self->change(*call);
                    }
                    decided(is_there);
                });
}

void VersionPin::change(Call& call) {
    // Its headers are there.
    call.prepare = nullptr;
    HttpHeaders& headers = call.request.headers;
    const auto found =
        std::find_if(headers.begin(), headers.end(), [this](const auto& header) { return header.first == header_; });
    if (sent_ == Sent::kAsInS3 && header_ == "if-match" && without_quotes(etag_) != etag_) {
        sent_ = Sent::kWithoutQuotes;
        found->second = without_quotes(etag_);
        return;
    }
    sent_ = Sent::kNotAtAll;
    headers.erase(found);
}

void VersionPin::tell() const {
    if (sender_->is_first(header_)) {
        log_warning(
            format("the store refuses {} where the version is there: it is looked at before and after, and what "
                   "another mount does to it in between is not noticed",
                   header_ == "if-match" ? "If-Match on writes" : header_));
    }
}

void VersionPin::confirm(const SharedCall& call, std::string written, std::function<void(Status)> confirmed) {
    if (sent_ != Sent::kNotAtAll) {
        confirmed({});
        return;
    }
    // It was the condition that was in the way.
    tell();
    head_object(
        sender_, key_, call->retry,
        [self = shared_from_this(), precondition_errno = call->precondition_errno, operation = call->request.operation,
         written = std::move(written), confirmed = std::move(confirmed)](const Result<ObjectInfo>& object) {
            const std::string& expected = written.empty() ? self->etag_ : written;
            if (object && without_quotes(object->etag) == without_quotes(expected)) {
                confirmed({});
                return;
            }
            if (!object && object.error().errno_value != ENOENT) {
                confirmed(failure(object.error()));
                return;
            }
            FailedRequest failed;
            failed.operation = operation;
            failed.bucket = self->sender_->bucket();
            failed.key = self->key_;
            failed.status = 412;
            failed.body.code = "PreconditionFailed";
            failed.precondition_errno = precondition_errno;
            confirmed(failure(store_error(failed)));
        });
}

void send_pinned(const std::shared_ptr<RequestSender>& sender, const SharedCall& call,
                 const std::shared_ptr<VersionPin>& pin) {
    if (pin != nullptr) {
        call->done = [sender, raw = std::weak_ptr<Call>(call), pin,
                      done = std::move(call->done)](Result<HttpResponse> outcome) mutable {
            const SharedCall answered = raw.lock();
            if (outcome) {
                pin->confirm(answered, "", [done = std::move(done), outcome](const Status& confirmed) mutable {
                    done(confirmed ? std::move(outcome) : failure(confirmed.error()));
                });
                return;
            }
            if (!pin->may_be_misjudged(outcome.error())) {
                done(std::move(outcome));
                return;
            }
            pin->look(answered, [sender, answered, pin, done = std::move(done),
                                 error = std::move(outcome.error())](bool again) mutable {
                if (again) {
                    answered->done = std::move(done);
                    send_pinned(sender, answered, pin);
                } else {
                    done(failure(std::move(error)));
                }
            });
        };
    }
    sender->send(call);
}

}  // namespace ckptfs
