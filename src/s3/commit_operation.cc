// SPDX-License-Identifier: Apache-2.0
#include "s3/commit_operation.h"

#include <utility>

#include "ckptfs/log.h"
#include "s3/head_operation.h"

namespace ckptfs {
namespace {

bool may_have_been_ours(const Error& error) {
    return error.outcome_unknown || error.s3_code == "NoSuchUpload" || error.http_status == 412;
}

}  // namespace

CommitOperation::CommitOperation(std::shared_ptr<RequestSender> sender, SharedCall call, std::string write_id,
                                 Read read, StoreDone<PutResponse> done)
    : sender_(std::move(sender)),
      call_(std::move(call)),
      write_id_(std::move(write_id)),
      read_(std::move(read)),
      done_(std::move(done)) {}

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
    call_->done = answer_handler();
    sender_->send(call_);
}

std::function<void(Result<HttpResponse>)> CommitOperation::answer_handler() {
    return [self = shared_from_this()](Result<HttpResponse> outcome) { self->on_answer(std::move(outcome)); };
}

void CommitOperation::on_answer(Result<HttpResponse> outcome) {
    if (outcome) {
        finish(std::move(response_));
        return;
    }
    if (drop_condition(outcome.error())) {
        return;
    }
    if (write_id_.empty() || outcome.error().errno_value == ECANCELED || !may_have_been_ours(outcome.error())) {
        finish(failure(std::move(outcome.error())));
        return;
    }
    look(std::move(outcome.error()));
}

bool CommitOperation::drop_condition(const Error& error) {
    if (error.s3_code != "NotImplemented" || std::erase_if(call_->request.headers, [](const auto& header) {
                                                 return header.first == "if-none-match";
                                             }) == 0) {
        return false;
    }
    if (sender_->found_no_write_conditions()) {
        log_warning("the store knows no If-None-Match on writes: two mounts that make one name at once are not told");
    }
    // Its headers are there.
    call_->prepare = nullptr;
    call_->done = answer_handler();
    sender_->send(call_);
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
