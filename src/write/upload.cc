// SPDX-License-Identifier: Apache-2.0
#include "write/upload.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/uuid.h"
#include "ckptfs/log.h"
#include "write/publish_permits.h"

namespace ckptfs {
namespace {

// It is no use racing a client that ends our uploads again and again.
constexpr int kMostAnew = 3;

UploadTarget with_write_id(UploadTarget target, const std::string& write_id) {
    target.metadata[kWriteIdMetadata] = write_id;
    return target;
}

}  // namespace

std::shared_ptr<Upload> Upload::create(ObjectStore& store, UploadTarget target) {
    return std::shared_ptr<Upload>(new Upload(store, std::move(target)));
}

Upload::Upload(ObjectStore& store, UploadTarget target)
    : store_(store),
      target_(std::move(target)),
      write_id_(target_.write_id.empty() ? random_uuid() : target_.write_id) {}

Upload::~Upload() {
    if (id_ && !closed_) {
        // The mount's store reports an upload that could not be ended, and tries again.
        store_.abort_upload(*id_, [](const Status& /*ended*/) {});
    }
}

void Upload::send_part(int number, Payload body, std::uint32_t crc32c, PartDone done) {
    add_part(number, PartRequest{std::move(body), crc32c, std::nullopt, {std::move(done)}});
}

void Upload::copy_part(int number, CopySource source, PartDone done) {
    add_part(number, PartRequest{Payload(), 0, std::move(source), {std::move(done)}});
}

void Upload::add_part(int number, PartRequest request) {
    const auto self = shared_from_this();
    MutexLock lock(mutex_);
    PartState& part = parts_[number];
    part.forgotten = false;
    if (part.next) {
        // Superseded before it left: its waiters are answered for the later bytes.
        for (PartDone& done : part.next->done) {
            request.done.push_back(std::move(done));
        }
        discard(std::move(part.next->body));
    }
    part.next = std::move(request);
    if (failure_) {
        answer_waiting_parts();
    } else if (!id_) {
        create_upload();
    } else if (!part.in_flight) {
        start_part(number);
    }
    outbox_.deliver(lock);
}

void Upload::create_upload() {
    if (creating_) {
        return;
    }
    creating_ = true;
    ++in_flight_;
    outbox_.add([self = shared_from_this()] {
        CreateUploadRequest request;
        const UploadTarget target = with_write_id(self->target_, self->write_id_);
        request.key = target.key;
        request.metadata = target.metadata;
        request.content_encoding = target.content_encoding;
        self->store_.create_upload(std::move(request), [self](Result<UploadId> id) { self->created(std::move(id)); });
    });
}

void Upload::created(Result<UploadId> id) {
    MutexLock lock(mutex_);
    --in_flight_;
    if (id) {
        id_ = std::move(*id);
    } else {
        keep_failure(id.error());
    }
    if (failure_) {
        answer_waiting_parts();
    } else {
        for (auto& [number, part] : parts_) {
            if (!part.in_flight) {
                start_part(number);
            }
        }
    }
    go_on_when_quiet();
    outbox_.deliver(lock);
}

void Upload::start_part(int number) {
    PartState& part = parts_[number];
    if (!part.next) {
        return;
    }
    part.in_flight = true;
    ++in_flight_;
    auto request = std::make_shared<PartRequest>(std::move(*part.next));
    part.next.reset();
    outbox_.add([self = shared_from_this(), number, request, id = *id_] {
        auto answered = [self, number, id, request](Result<UploadedPart> result) {
            self->part_answered(number, id, request, std::move(result));
        };
        if (request->source) {
            self->store_.upload_part_copy(
                {id, number, request->source->key, request->source->etag, request->source->range}, std::move(answered));
        } else {
            self->store_.upload_part({id, number, request->body, request->crc32c}, std::move(answered));
        }
    });
}

void Upload::part_answered(int number, const UploadId& id, const std::shared_ptr<PartRequest>& request,
                           Result<UploadedPart> result) {
    MutexLock lock(mutex_);
    --in_flight_;
    PartState& part = parts_[number];
    part.in_flight = false;
    Status status;
    if (begin_anew(number, id, request, result)) {
        outbox_.deliver(lock);
        return;
    }
    if (result) {
        part.uploaded = std::move(*result);
        part.uploaded->part_number = number;
        part.uploaded->size = request->source ? request->source->size : request->body.size();
    } else {
        keep_failure(result.error());
        status = failure(*failure_);
    }
    for (const PartDone& call : request->done) {
        outbox_.add([call, status] { call(status); });
    }
    if (failure_) {
        answer_waiting_parts();
    } else {
        start_part(number);
    }
    go_on_when_quiet();
    outbox_.deliver(lock);
}

bool Upload::begin_anew(int number, const UploadId& id, const std::shared_ptr<PartRequest>& request,
                        const Result<UploadedPart>& result) {
    const bool is_present = id_ && id_->id == id.id;
    const bool is_gone = !result && is_upload_gone(result.error());
    const bool holds_a_part =
        std::any_of(parts_.begin(), parts_.end(), [](const auto& each) { return each.second.uploaded.has_value(); });
    if (failure_ || (is_present && (!is_gone || holds_a_part || begun_anew_ == kMostAnew))) {
        return false;
    }
    PartState& part = parts_[number];
    if (part.next) {
        part.next->done.insert(part.next->done.begin(), request->done.begin(), request->done.end());
    } else {
        part.next = *request;
    }
    if (is_present) {
        log_info(
            format("{}: its empty upload was aborted by another client; starting a new one", escaped(target_.key)));
        ++begun_anew_;
        id_.reset();
        creating_ = false;
        create_upload();
    } else if (id_) {
        start_part(number);
    }
    return true;
}

void Upload::forget_parts_from(int number) {
    const MutexLock lock(mutex_);
    for (auto part = parts_.lower_bound(number); part != parts_.end(); ++part) {
        part->second.forgotten = true;
    }
}

void Upload::put(Payload body, std::uint32_t crc32c, Published done) {
    const auto self = shared_from_this();
    MutexLock lock(mutex_);
    if (failure_) {
        outbox_.add([done = std::move(done), error = *failure_] { done(failure(error)); });
    } else {
        completing_ = std::move(done);
        const UploadTarget target = with_write_id(target_, write_id_);
        PutRequest request;
        request.key = target.key;
        request.body = std::move(body);
        request.crc32c = crc32c;
        request.metadata = target.metadata;
        request.content_encoding = target.content_encoding;
        request.if_none_match = target.if_none_match;
        publish([self, request = std::move(request)](const PublishPermit::Counts& may_send) mutable {
            request.may_send = may_send;
            self->store_.put(std::move(request),
                             [self](Result<PutResponse> result) { self->completed(std::move(result)); });
        });
    }
    outbox_.deliver(lock);
}

void Upload::complete(std::uint64_t size, Published done) {
    const auto self = shared_from_this();
    MutexLock lock(mutex_);
    size_to_complete_ = size;
    completing_ = std::move(done);
    go_on_when_quiet();
    outbox_.deliver(lock);
}

void Upload::give_up() {
    const auto self = shared_from_this();
    MutexLock lock(mutex_);
    send_no_more();
    outbox_.deliver(lock);
}

void Upload::send_no_more() {
    if (!failure_) {
        Error error;
        error.errno_value = ECANCELED;
        error.message = format("{}: the upload was given up", escaped(target_.key));
        failure_ = std::move(error);
    }
    answer_waiting_parts();
    renew_no_more();
}

// The caller may wait on the thread that the renewal needs.
void Upload::renew_no_more() {
    if (std::exchange(renewing_, false)) {
        publishing_ended(failure(*failure_));
    }
}

void Upload::abort(Done done) {
    const auto self = shared_from_this();
    MutexLock lock(mutex_);
    send_no_more();
    aborting_.push_back(std::move(done));
    end_before_quiet();
    go_on_when_quiet();
    outbox_.deliver(lock);
}

void Upload::go_on_when_quiet() {
    if (in_flight_ > 0) {
        return;
    }
    if (completing_ && !closed_) {
        if (failure_) {
            outbox_.add([done = std::exchange(completing_, nullptr), error = *failure_] { done(failure(error)); });
        } else {
            complete_now();
            return;
        }
    }
    if (!aborting_.empty()) {
        end_now();
    }
}

void Upload::complete_now() {
    CompleteRequest request;
    request.upload = *id_;
    request.write_id = write_id_;
    request.if_none_match = target_.if_none_match;
    for (const auto& [number, part] : parts_) {
        if (!part.forgotten) {
            request.parts.push_back(*part.uploaded);
            request.size += part.uploaded->size;
        }
    }
    if (request.size != size_to_complete_) {
        keep_failure(failure(EIO, format("write {}: its parts add up to {} bytes instead of {}; write the file anew",
                                         escaped(target_.key), request.size, size_to_complete_))
                         .value());
        outbox_.add([done = std::exchange(completing_, nullptr), error = *failure_] { done(failure(error)); });
        return;
    }
    publish([self = shared_from_this(), request = std::move(request)](const PublishPermit::Counts& may_send) mutable {
        request.may_send = may_send;
        self->store_.complete_upload(std::move(request),
                                     [self](Result<PutResponse> result) { self->completed(std::move(result)); });
    });
}

void Upload::publish(Publish send) {
    publishing_ = true;
    ++in_flight_;
    permit_ = target_.permits != nullptr ? target_.permits->find(target_.key) : PublishPermit();
    if (permit_.renew) {
        publish_ = send;
        renewals_ = target_.permits->renewals();
    }
    outbox_.add([send = std::move(send), counts = permit_.counts] { send(counts); });
}

bool Upload::renew_permit(const Result<PutResponse>& result) {
    if (result || failure_ || !permit_.renew || permit_.counts() || !renewals_->one_more()) {
        return false;
    }
    renewing_ = true;
    outbox_.add([self = shared_from_this(), renew = permit_.renew] {
        renew([self](Result<PublishPermit::Counts> counts) { self->renewed(std::move(counts)); });
    });
    return true;
}

void Upload::renewed(Result<PublishPermit::Counts> counts) {
    MutexLock lock(mutex_);
    if (!std::exchange(renewing_, false)) {
        // Given up meanwhile.
        return;
    }
    if (counts) {
        permit_.counts = std::move(*counts);
        outbox_.add([send = publish_, counts = permit_.counts] { send(counts); });
    } else {
        publishing_ended(failure(counts.error()));
    }
    outbox_.deliver(lock);
}

void Upload::completed(Result<PutResponse> result) {
    MutexLock lock(mutex_);
    if (!renew_permit(result)) {
        if (!result && permit_.counts && !permit_.counts()) {
            result = failure(told_as_late(std::move(result.error()), escaped(target_.key)));
        }
        publishing_ended(std::move(result));
    }
    outbox_.deliver(lock);
}

void Upload::publishing_ended(Result<PutResponse> result) {
    --in_flight_;
    publishing_ = false;
    // It may hold a buffer.
    outbox_.add([sent = std::exchange(publish_, nullptr)] {});
    if (result) {
        closed_ = true;
    } else {
        keep_failure(result.error());
    }
    outbox_.add([done = std::exchange(completing_, nullptr), result = std::move(result)] { done(result); });
    go_on_when_quiet();
}

void Upload::end_now() {
    if (closed_ || !id_) {
        for (Done& done : aborting_) {
            outbox_.add([done = std::move(done)] { done(Status()); });
        }
        aborting_.clear();
        return;
    }
    if (std::exchange(ending_, true)) {
        return;
    }
    outbox_.add([self = shared_from_this(), id = *id_] {
        self->store_.abort_upload(id, [self](const Status& status) {
            MutexLock lock(self->mutex_);
            // Not retried here: the store client has already done so for as long as it was told to, and the mount's
            // store goes on.
            self->closed_ = true;
            for (Done& done : self->aborting_) {
                self->outbox_.add([done = std::move(done), status] { done(status); });
            }
            self->aborting_.clear();
            self->outbox_.deliver(lock);
        });
    });
}

void Upload::end_before_quiet() {
    if (in_flight_ == 0 || !id_ || publishing_ || closed_ || aborting_.size() > 1) {
        return;
    }
    ++in_flight_;
    outbox_.add([self = shared_from_this(), id = *id_] {
        // Retried when nothing is in flight, and answered then.
        self->store_.abort_upload(id, [self](const Status&) {
            MutexLock lock(self->mutex_);
            --self->in_flight_;
            self->go_on_when_quiet();
            self->outbox_.deliver(lock);
        });
    });
}

void Upload::keep_failure(const Error& error) {
    if (!failure_) {
        failure_ = error;
    }
}

void Upload::answer_waiting_parts() {
    for (auto& [number, part] : parts_) {
        if (part.next) {
            for (PartDone& done : part.next->done) {
                outbox_.add([done = std::move(done), error = *failure_] { done(failure(error)); });
            }
            discard(std::move(part.next->body));
            part.next.reset();
        }
    }
}

void Upload::discard(Payload body) {
    // Freed memory wakes its waiters: not under our mutex.
    outbox_.add([body = std::move(body)] {});
}

std::uint64_t Upload::bytes_in_store() const {
    const MutexLock lock(mutex_);
    std::uint64_t bytes = 0;
    for (const auto& [number, part] : parts_) {
        if (part.uploaded && !part.forgotten) {
            bytes += part.uploaded->size;
        }
    }
    return bytes;
}

int Upload::requests_in_flight() const {
    const MutexLock lock(mutex_);
    return in_flight_;
}

}  // namespace ckptfs
