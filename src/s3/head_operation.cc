// SPDX-License-Identifier: Apache-2.0
#include "s3/head_operation.h"

#include <utility>

#include "s3/responses.h"

namespace ckptfs::s3 {
namespace {

Status read_info(const std::string& key, const HttpResponse& response, ObjectInfo& object) {
    auto info = object_info(key, response);
    if (!info) {
        Error error;
        error.errno_value = EPROTO;
        error.retryable = true;
        error.message = "the response does not give the size of the object";
        return failure(std::move(error));
    }
    object = std::move(*info);
    return {};
}

void ask_for_object(const std::shared_ptr<RequestSender>& sender, S3Request request,
                    const std::shared_ptr<RetryState>& retry, StoreDone<ObjectInfo> done) {
    auto call = std::make_shared<Call>();
    auto object = std::make_shared<ObjectInfo>();
    call->accept = [object, key = request.key](const HttpResponse& response) {
        return read_info(key, response, *object);
    };
    call->request = std::move(request);
    call->kind = LateReads::kind_of(call->request.operation, 0);
    call->retry = retry;
    call->is_light = true;
    call->done = [object, done = std::move(done)](Result<HttpResponse> outcome) {
        if (!outcome) {
            done(failure(std::move(outcome.error())));
            return;
        }
        done(std::move(*object));
    };
    sender->send(call);
}

bool needs_code(const Error& error) {
    return error.http_status >= 300 && error.http_status < 500 && error.http_status != 404 &&
           error.http_status != 412 && error.s3_code.empty();
}

// An empty object has no range that could be read.
bool object_is_empty(const Result<ObjectInfo>& got) {
    return !got && is_range_outside(got.error());
}

// An empty object has no byte to ask for, so that the code stays unknown: it may be that of credentials which not all
// of the store's front ends know yet. The number is chosen: each look is two round trips.
constexpr int kMostLooks = 5;

void look_at_object(const std::shared_ptr<RequestSender>& sender, const std::string& key,
                    const std::shared_ptr<RetryState>& retry, int looks, StoreDone<ObjectInfo> done) {
    ask_for_object(sender, head_request(key), retry, [=, done = std::move(done)](Result<ObjectInfo> object) {
        if (object || !needs_code(object.error()) || looks == 0) {
            done(std::move(object));
            return;
        }
        S3Request get = get_request(key);
        get.headers = range_headers(ByteRange{0, 1, false}, "");
        ask_for_object(sender, std::move(get), retry, [=](Result<ObjectInfo> got) {
            if (object_is_empty(got)) {
                // The store accepts requests again.
                look_at_object(sender, key, retry, looks - 1, done);
                return;
            }
            done(std::move(got));
        });
    });
}

}  // namespace

void head_object(const std::shared_ptr<RequestSender>& sender, const std::string& key,
                 const std::shared_ptr<RetryState>& retry, StoreDone<ObjectInfo> done) {
    look_at_object(sender, key, retry, kMostLooks, std::move(done));
}

}  // namespace ckptfs::s3
