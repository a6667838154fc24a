// SPDX-License-Identifier: Apache-2.0
#include "s3/commit_operation.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "s3/error_table.h"
#include "s3/head_operation.h"

namespace ckptfs::s3 {
namespace {

constexpr const char* kGuard = "if-none-match";

bool is_if_none_match(const std::pair<std::string, std::string>& header) {
    return header.first == kGuard;
}

bool may_have_been_ours(const Error& error) {
    // A Complete may say inside a 200 that its condition did not hold.
    return error.outcome_unknown || is_upload_gone(error) || is_condition_failed(error);
}

// retry_for has passed for the commit and the HEAD. The HEAD has the errno for that: EIO, unless it waited for
// credentials.
Error given_up_with_look(Error error, const Error& look) {
    error.errno_value = look.errno_value;
    error.message += "; its key could not be looked at either: " + look.message;
    return error;
}

}  // namespace

CommitOperation::CommitOperation(std::shared_ptr<RequestSender> sender, SharedCall call, std::string write_id,
                                 Read read, StoreDone<PutResponse> done, std::shared_ptr<VersionPin> pin)
    : sender_(std::move(sender)),
      call_(std::move(call)),
      write_id_(std::move(write_id)),
      is_copy_(call_->request.operation == "CopyObject"),
      read_(std::move(read)),
      done_(std::move(done)),
      pin_(std::move(pin)) {}

void CommitOperation::start() {
    call_->stops_when_outcome_unknown = !write_id_.empty();
    call_->accept = [weak = weak_from_this()](const HttpResponse& response) -> Status {
        const auto self = weak.lock();
        Result<PutResponse> read = self->read_(response);
        if (!read) {
            self->note_damage(read.error(), response);
            return failure(std::move(read.error()));
        }
        self->response_ = std::move(*read);
        return {};
    };
    has_guard_ = std::any_of(call_->request.headers.begin(), call_->request.headers.end(), is_if_none_match);
    if (sender_->habits().condition(guard_kind()) == SentCondition::kNotAtAll) {
        static_cast<void>(take_guard());
    }
    if (pin_ == nullptr) {
        send_again();
        return;
    }
    pin_->prepare(call_, [self = shared_from_this()](const Status& prepared) {
        if (prepared) {
            self->send_again();
        } else {
            self->finish(failure(prepared.error()));
        }
    });
}

std::function<void(Result<HttpResponse>)> CommitOperation::answer_handler() {
    return [self = shared_from_this()](Result<HttpResponse> outcome) { self->on_answer(std::move(outcome)); };
}

void CommitOperation::on_answer(Result<HttpResponse> outcome) {
    const auto self = shared_from_this();
    if (outcome) {
        note_guard();
    }
    if (outcome && pin_ != nullptr) {
        pin_->confirm(call_, is_copy_ ? "" : response_.etag, [self](Status confirmed) {
            if (confirmed) {
                self->finish(std::move(self->response_));
                return;
            }
            Error& error = confirmed.error();
            // The call has taken effect; only the HEAD afterwards failed.
            error.outcome_unknown = error.outcome_unknown || !is_condition_failed(error);
            self->finish(failure(std::move(error)));
        });
        return;
    }
    if (outcome) {
        finish(std::move(response_));
        return;
    }
    if (is_not_implemented(outcome.error()) && take_guard()) {
        // The headers that it adds are there already.
        call_->prepare = nullptr;
        send_again();
        return;
    }
    if (pin_ != nullptr && pin_->may_be_misjudged(outcome.error())) {
        put_guard_back();
        pin_->look(call_, std::move(outcome.error()), [self](Status again) {
            if (again) {
                self->send_again();
            } else {
                self->settle_refusal(std::move(again.error()));
            }
        });
        return;
    }
    settle(std::move(outcome.error()));
}

void CommitOperation::settle(Error error) {
    const bool is_recognisable = !write_id_.empty() || damage_;
    // An object that was damaged in transit may be there.
    error.outcome_unknown = error.outcome_unknown || damage_;
    if (!is_recognisable || error.errno_value == ECANCELED || !may_have_been_ours(error)) {
        finish(failure(std::move(error)));
        return;
    }
    look(std::move(error));
}

void CommitOperation::send_again() {
    call_->done = answer_handler();
    call_->before_retry = nullptr;
    if (without_guard_ || (pin_ != nullptr && pin_->is_left_out())) {
        // What the HEAD showed may have changed by then.
        call_->before_retry = [self = shared_from_this()](const SharedCall&) { self->retry(); };
    }
    if (without_guard_) {
        send_if_absent();
    } else {
        sender_->send(call_);
    }
}

void CommitOperation::retry() {
    if (pin_ == nullptr) {
        send_again();
        return;
    }
    pin_->look_again(call_, [self = shared_from_this()](Status is_there) {
        if (is_there) {
            self->send_again();
            return;
        }
        self->settle_refusal(std::move(is_there.error()));
    });
}

// The other version may be what an earlier attempt has written.
void CommitOperation::settle_refusal(Error error) {
    error.outcome_unknown = error.outcome_unknown || call_->retry->outcome_unknown || damage_;
    settle(std::move(error));
}

void CommitOperation::send_if_absent() {
    head_object(sender_, call_->request.key, call_->retry, [self = shared_from_this()](Result<ObjectInfo> object) {
        if (object && !self->is_damaged(*object)) {
            self->finish(self->is_ours(*object) ? Result<PutResponse>({object->etag, object->last_modified})
                                                : failure(self->taken()));
        } else if (!object && object.error().errno_value != ENOENT) {
            self->finish(failure(std::move(object.error())));
        } else {
            self->sender_->send(self->call_);
        }
    });
}

std::string CommitOperation::guard_kind() const {
    return std::string(kGuard) + " of " + std::string(call_->request.operation);
}

bool CommitOperation::take_guard() {
    if (std::erase_if(call_->request.headers, is_if_none_match) == 0) {
        return false;
    }
    without_guard_ = true;
    return true;
}

void CommitOperation::put_guard_back() {
    if (without_guard_ && sender_->habits().condition(guard_kind()) != SentCondition::kNotAtAll) {
        call_->request.headers.emplace_back(kGuard, "*");
        without_guard_ = false;
    }
}

void CommitOperation::note_guard() {
    if (has_guard_ &&
        sender_->habits().took(guard_kind(), without_guard_ ? SentCondition::kNotAtAll : SentCondition::kAsInS3)) {
        log_warning(format(
            "the store does not support If-None-Match on writes: if two mounts create the same name at once, the last "
            "one wins ({})",
            call_->request.operation));
    }
}

bool CommitOperation::is_ours(const ObjectInfo& object) const {
    const auto found = object.metadata.find(kWriteIdMetadata);
    return !write_id_.empty() && found != object.metadata.end() && found->second == write_id_;
}

void CommitOperation::note_damage(const Error& error, const HttpResponse& response) {
    if (error.s3_code == "BadDigest") {
        damage_ = error;
        damaged_etag_ = response.header("etag");
    }
}

// False for what a later attempt, whose reply was lost, has put in its place.
bool CommitOperation::is_damaged(const ObjectInfo& object) const {
    if (!damage_) {
        return false;
    }
    if (damaged_etag_.empty() || object.etag.empty()) {
        return is_ours(object);
    }
    return is_same_version(object.etag, damaged_etag_) && (write_id_.empty() || is_ours(object));
}

Error CommitOperation::damage() const {
    Error error = *damage_;
    error.retryable = false;
    error.outcome_unknown = true;
    error.message =
        request_name(call_->request.operation, sender_->bucket(), call_->request.key) + ": " + error.message;
    return error;
}

Error CommitOperation::taken() const {
    Error error =
        condition_failed(call_->request.operation, sender_->bucket(), call_->request.key, call_->precondition_errno);
    error.outcome_unknown = call_->retry->outcome_unknown;
    return error;
}

// Whether an object of another client explains the error. Amazon S3 may end an upload whose Complete conflicted with
// another write of the key (409).
bool CommitOperation::is_in_the_way(const Error& error) const {
    return without_guard_ || (has_guard_ && is_upload_gone(error));
}

bool CommitOperation::is_final(const Error& error) const {
    return !error.retryable || call_->retry->given_up;
}

void CommitOperation::look(Error error) {
    head_object(sender_, call_->request.key, call_->retry,
                [self = shared_from_this(), was_given_up = call_->retry->given_up,
                 error = std::move(error)](Result<ObjectInfo> object) mutable {
                    if (object && self->is_damaged(*object)) {
                        // Another attempt, if there is one, replaces it or is refused.
                        self->go_on(self->is_final(error) ? self->damage() : std::move(error));
                    } else if (object && self->is_ours(*object)) {
                        self->finish(PutResponse{object->etag, object->last_modified});
                    } else if (object && self->is_in_the_way(error)) {
                        self->finish(failure(self->taken()));
                    } else {
                        if (!object && error.retryable && !was_given_up && self->call_->retry->given_up) {
                            error = given_up_with_look(std::move(error), object.error());
                        }
                        self->go_on(std::move(error));
                    }
                });
}

void CommitOperation::go_on(Error error) {
    if (is_final(error)) {
        finish(failure(std::move(error)));
        return;
    }
    call_->done = answer_handler();
    sender_->resume(call_, std::move(error));
}

void CommitOperation::finish(Result<PutResponse> response) {
    if (response) {
        response->may_come_again = call_->retry->outcome_unknown;
    }
    // Breaks the reference cycle of operation, call and handler.
    call_.reset();
    std::exchange(done_, nullptr)(std::move(response));
}

}  // namespace ckptfs::s3
