// SPDX-License-Identifier: Apache-2.0
#include "s3/get_operation.h"

#include <algorithm>
#include <utility>

#include "aws/times.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "s3/head_operation.h"
#include "s3/responses.h"

namespace ckptfs::s3 {
namespace {

// Ranges up to this size are light requests: less than a read of data.
constexpr std::uint64_t kLightRange = std::uint64_t{64} << 10;
// The same for the end of an object: this is the seek table of a file of 85 GiB.
constexpr std::uint64_t kLightEnd = std::uint64_t{1} << 20;

Failure unusable(int errno_value, std::string message, bool retryable) {
    Error error;
    error.errno_value = errno_value;
    error.retryable = retryable;
    error.message = std::move(message);
    return Failure(std::move(error));
}

// What the head of a reply says it brings.
struct Delivered {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};

Result<Delivered> delivered_by(const HttpResponse& head) {
    const auto length = content_length(head);
    // rclone's server names the range it sends under the status 200.
    const std::string_view content_range = head.header("content-range");
    if (head.status == 206 || !content_range.empty()) {
        const auto range = parse_content_range(content_range);
        if (!range || (length && *length != range->last - range->first + 1)) {
            return unusable(EPROTO, "the response to a range request has no Content-Range", true);
        }
        return Delivered{range->first, range->last - range->first + 1};
    }
    if (!length) {
        return unusable(EPROTO, "the response has no Content-Length", true);
    }
    return Delivered{0, *length};
}

// A shorter reply is right if the object ends first.
bool answers_range(const ByteRange& range, const Delivered& delivered, std::uint64_t object_size) {
    if (range.suffix) {
        return delivered.offset + delivered.length == object_size &&
               delivered.length == std::min(range.length, object_size);
    }
    return delivered.offset == range.offset && delivered.length == std::min(range.length, object_size - range.offset);
}

}  // namespace

GetOperation::GetOperation(std::shared_ptr<RequestSender> sender, bool checksums, GetRequest request,
                           StoreDone<GetResponse> done)
    : sender_(std::move(sender)), checksums_(checksums), request_(std::move(request)), done_(std::move(done)) {}

void GetOperation::start() {
    if (request_.range && request_.range->length == 0) {
        done_(unusable(EINVAL, format("GetObject: a range of no bytes of {}", request_.key), false));
        return;
    }
    send();
}

void GetOperation::send() {
    auto call = std::make_shared<Call>();
    const auto self = shared_from_this();
    call->request = get_request(request_.key);
    call->retry = retry_;
    const std::uint64_t most = request_.for_open ? kLightEnd : kLightRange;
    call->is_light = request_.range ? request_.range->length <= most : request_.is_small;
    // The call owns these functions and calls them, so its address is good as long as they run.
    call->attempt_headers = [self, raw = call.get()] {
        raw->kind = self->kind();
        return self->attempt_headers();
    };
    call->on_head = [self, raw = call.get()](const HttpResponse& head) {
        Status taken = self->take_head(head);
        if (!taken) {
            raw->refusal = std::move(taken.error());
        }
        return taken.has_value();
    };
    call->on_body = [self, raw = call.get()](ByteSpan bytes) { return self->take_body(bytes, *raw); };
    call->accept = [self](const HttpResponse&) -> Status {
        if (self->response_ && self->delivered_ == self->response_->length) {
            return {};
        }
        return unusable(ECONNRESET, "the answer ended early", true);
    };
    call->done = [self](Result<HttpResponse> outcome) { self->finish(std::move(outcome)); };
    sender_->send(call);
}

// Empty for whole objects, which may have any size.
std::optional<LateReads::Kind> GetOperation::kind() const {
    if (!request_.range) {
        return std::nullopt;
    }
    const std::uint64_t rest = response_ && response_->length > 0 ? missing().length : request_.range->length;
    return LateReads::kind_of("GetObject", rest);
}

HttpHeaders GetOperation::attempt_headers() const {
    if (!response_) {
        HttpHeaders headers = range_headers(request_.range, request_.if_match);
        if (!request_.range && checksums_) {
            headers.emplace_back("x-amz-checksum-mode", "ENABLED");
        }
        return headers;
    }
    const std::string& etag = response_->object.etag;
    return range_headers(response_->length == 0 ? request_.range : missing(), etag.empty() ? request_.if_match : etag);
}

// A connection may break after the last byte: requesting that one again tells whether the version is still there.
ByteRange GetOperation::missing() const {
    const std::uint64_t from = std::min(delivered_, response_->length - 1);
    return ByteRange{response_->offset + from, response_->length - from, false};
}

Status GetOperation::take_head(const HttpResponse& head) {
    return response_ && response_->length > 0 ? take_resumed_head(head) : take_first_head(head);
}

Status GetOperation::take_first_head(const HttpResponse& head) {
    const Result<Delivered> delivered = delivered_by(head);
    auto object = object_info(request_.key, head);
    if (!delivered || !object) {
        return delivered ? unusable(EPROTO, "the response does not give the size of the object", true)
                         : failure(delivered.error());
    }
    // Not every store honours If-Match.
    if (is_another_version(*object)) {
        return unusable(ESTALE, "the object was replaced before it was read", false);
    }
    const bool whole_empty = object->size == 0 && delivered->length == 0;
    if (request_.range && !whole_empty && !answers_range(*request_.range, *delivered, object->size)) {
        return unusable(EPROTO, "the store returned another range than the one requested", false);
    }
    answered_etag_ = object->etag;
    if (object->etag.empty()) {
        object->etag = request_.if_match;
    }
    response_ = GetResponse{std::move(*object), delivered->offset, delivered->length,
                            std::string(head.header("x-amz-request-id")),
                            parse_http_date(head.header("date")).value_or(WallTime{})};
    if (!request_.range) {
        check_.emplace(head);
    }
    if (is_unidentified() && request_.on_unidentified) {
        request_.on_unidentified();
    }
    return {};
}

bool GetOperation::is_another_version(const ObjectInfo& answered) const {
    // Some stores' ETags do not change with every overwrite.
    if (request_.if_size && answered.size != *request_.if_size) {
        return true;
    }
    if (!answered.etag.empty() && !request_.if_match.empty()) {
        return answered.etag != request_.if_match;
    }
    const bool has_times = request_.if_modified != WallTime{} && answered.last_modified != WallTime{};
    return has_times && answered.last_modified != request_.if_modified;
}

// True if neither an ETag nor a time identifies the version. A store without ETags gives only a time to the second,
// which two versions of one size may share.
bool GetOperation::is_unidentified() const {
    const bool are_times_told = request_.if_modified != WallTime{} && response_->object.last_modified != WallTime{};
    return answered_etag_.empty() && !request_.if_match.empty() && !are_times_told;
}

Status GetOperation::take_resumed_head(const HttpResponse& head) {
    const Result<Delivered> delivered = delivered_by(head);
    if (!delivered) {
        return failure(delivered.error());
    }
    const auto object = object_info(request_.key, head);
    const ObjectInfo& first = response_->object;
    const bool same = object && object->etag == answered_etag_ && object->size == first.size &&
                      (!answered_etag_.empty() || object->last_modified == first.last_modified);
    if (!same) {
        return unusable(ESTALE, "the object was replaced while it was read", false);
    }
    const ByteRange asked = missing();
    if (delivered->offset != asked.offset || delivered->length != asked.length) {
        return unusable(EPROTO, "the store returned another range than the one requested", false);
    }
    only_its_end_ = delivered_ == response_->length;
    return {};
}

bool GetOperation::take_body(ByteSpan bytes, Call& call) {
    if (only_its_end_) {
        return true;
    }
    if (bytes.size() > response_->length - delivered_) {
        call.refusal = unusable(EPROTO, "the response is longer than its Content-Length", false).value();
        return false;
    }
    delivered_ += bytes.size();
    if (check_) {
        check_->take(bytes);
    }
    retry_->progressed();
    return !request_.on_body || request_.on_body(bytes);
}

void GetOperation::finish(Result<HttpResponse> outcome) {
    const Verdict verdict = outcome && check_ ? check_->verdict(sender_->habits()) : Verdict::kNothingKnown;
    if (verdict == Verdict::kDamaged) {
        done_(
            damage(format("GetObject {}: the bytes that came are not those that the store has checksummed (request {})",
                          escaped(request_.key), escaped(response_->request_id))));
        return;
    }
    if (outcome) {
        response_->has_checksum = verdict == Verdict::kRight;
    }
    if (outcome && is_unidentified()) {
        identify();
        return;
    }
    if (outcome) {
        done_(std::move(*response_));
        return;
    }
    if (request_.range && is_range_outside(outcome.error()) && !response_ && !range_adjusted_) {
        answer_without_body(std::move(outcome.error()));
        return;
    }
    Error& error = outcome.error();
    if (response_ && is_range_outside(error)) {
        // The object now ends before the range.
        done_(unusable(ESTALE, "the object was replaced while it was read", false));
        return;
    }
    if (error.errno_value == ENOENT && (response_ || !request_.if_match.empty())) {
        // The version that was asked for is gone.
        error.errno_value = ESTALE;
    }
    done_(failure(std::move(error)));
}

void GetOperation::identify() {
    head_object(sender_, request_.key, retry_, [self = shared_from_this()](const Result<ObjectInfo>& object) {
        const ObjectInfo& answered = self->response_->object;
        // A time that neither the reply nor the request gives decides nothing.
        const WallTime told =
            answered.last_modified != WallTime{} ? answered.last_modified : self->request_.if_modified;
        const bool same_time = object && (object->last_modified == told || told == WallTime{} ||
                                          (object->last_modified == WallTime{} && !object->etag.empty()));
        const bool same = same_time && (object->etag.empty() || object->etag == self->request_.if_match) &&
                          object->size == answered.size;
        if (same) {
            self->done_(std::move(*self->response_));
        } else if (object || object.error().errno_value == ENOENT) {
            self->done_(unusable(ESTALE, "the object was replaced while it was read", false));
        } else {
            self->done_(failure(object.error()));
        }
    });
}

// An empty object satisfies no range: stores reply 416, or InvalidRange, and only HEAD tells why. A suffix longer than
// the object, which some stores refuse as well, is asked for once more by its offset.
void GetOperation::answer_without_body(Error range_error) {
    head_object(sender_, request_.key, retry_,
                [self = shared_from_this(), error = std::move(range_error)](Result<ObjectInfo> object) mutable {
                    if (!object) {
                        self->done_(failure(std::move(object.error())));
                        return;
                    }
                    const std::string& pin = self->request_.if_match;
                    if ((!pin.empty() && object->etag != pin) || self->is_another_version(*object)) {
                        self->done_(unusable(ESTALE, "the object was replaced while it was read", false));
                        return;
                    }
                    if (object->size == 0) {
                        self->done_(GetResponse{std::move(*object), 0, 0, {}, {}});
                        return;
                    }
                    if (!self->request_.range->suffix) {
                        self->done_(failure(std::move(error)));
                        return;
                    }
                    const std::uint64_t length = std::min(self->request_.range->length, object->size);
                    self->request_.range = ByteRange{object->size - length, length, false};
                    self->request_.if_match = object->etag;
                    self->range_adjusted_ = true;
                    self->send();
                });
}

}  // namespace ckptfs::s3
