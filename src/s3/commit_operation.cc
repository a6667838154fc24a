// SPDX-License-Identifier: Apache-2.0
#include "s3/commit_operation.h"

#include <utility>

#include "ckptfs/log.h"
#include "s3/head_operation.h"

namespace ckptfs {
namespace {

// As StoreHabits knows it.
constexpr const char* kNoWriteConditions = "no If-None-Match on writes";

bool is_if_none_match(const std::pair<std::string, std::string>& header) {
    return header.first == "if-none-match";
}

bool may_have_been_ours(const Error& error) {
    return error.outcome_unknown || error.s3_code == "NoSuchUpload" || error.http_status == 412;
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
            return failure(std::move(read.error()));
        }
        self->response_ = std::move(*read);
        return {};
    };
    if (sender_->habits().has(kNoWriteConditions)) {
        std::erase_if(call_->request.headers, is_if_none_match);
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
    if (outcome && pin_ != nullptr) {
        pin_->confirm(call_, is_copy_ ? "" : response_.etag, [self](const Status& confirmed) {
            self->finish(confirmed ? Result<PutResponse>(std::move(self->response_)) : failure(confirmed.error()));
        });
        return;
    }
    if (outcome) {
        finish(std::move(response_));
        return;
    }
    if (pin_ != nullptr && pin_->may_be_misjudged(outcome.error())) {
        pin_->look(call_, std::move(outcome.error()), [self](Status again) {
            if (again) {
                self->send_again();
            } else {
                self->settle(std::move(again.error()));
            }
        });
        return;
    }
    settle(std::move(outcome.error()));
}

void CommitOperation::settle(Error error) {
    if (drop_condition(error)) {
        return;
    }
    if (write_id_.empty() || error.errno_value == ECANCELED || !may_have_been_ours(error)) {
        finish(failure(std::move(error)));
        return;
    }
    look(std::move(error));
}

void CommitOperation::send_again() {
    call_->done = answer_handler();
    sender_->send(call_);
}

bool CommitOperation::drop_condition(const Error& error) {
    if (error.s3_code != "NotImplemented" || std::erase_if(call_->request.headers, is_if_none_match) == 0) {
        return false;
    }
    if (sender_->habits().is_first(kNoWriteConditions)) {
        log_warning("the store knows no If-None-Match on writes: two mounts that make one name at once are not told");
    }
    // Its headers are there.
    call_->prepare = nullptr;
    send_again();
    return true;
}

void CommitOperation::look(Error error) {
    const std::string key = call_->request.key;
    head_object(sender_, key, call_->retry,
                [self = shared_from_this(), error = std::move(error)](Result<ObjectInfo> object) mutable {
                    if (object) {
                        const auto found = object->metadata.find(kWriteIdMetadata);
                        if (found != object->metadata.end() && found->second == self->write_id_) {
                            self->finish(PutResponse{object->etag, object->last_modified});
                            return;
                        }
                    }
                    self->go_on(std::move(error));
                });
}

void CommitOperation::go_on(Error error) {
    if (!error.retryable || call_->retry->given_up) {
        finish(failure(std::move(error)));
        return;
    }
    call_->done = answer_handler();
    sender_->resume(call_, std::move(error));
}

void CommitOperation::finish(Result<PutResponse> response) {
    // Ends the circle of operation, call and handler.
    call_.reset();
    std::exchange(done_, nullptr)(std::move(response));
}

}  // namespace ckptfs
