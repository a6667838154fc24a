// SPDX-License-Identifier: Apache-2.0
// An operation that is one request: sent, its answer read into a value, done.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "ckptfs/object_store.h"
#include "s3/call.h"
#include "s3/request_sender.h"

namespace ckptfs {

// `read`: Result<Value>(const HttpResponse&). The call may be given hooks before it is sent.
template <class Value, class Read>
SharedCall make_simple_call(S3Request request, Read read, StoreDone<Value> done) {
    auto call = std::make_shared<Call>();
    auto value = std::make_shared<std::optional<Value>>();
    call->request = std::move(request);
    call->accept = [value, read = std::move(read)](const HttpResponse& response) -> Status {
        Result<Value> result = read(response);
        if (!result) {
            return failure(std::move(result.error()));
        }
        *value = std::move(*result);
        return {};
    };
    call->done = [value, done = std::move(done)](Result<HttpResponse> outcome) {
        if (!outcome) {
            done(failure(std::move(outcome.error())));
            return;
        }
        done(std::move(**value));
    };
    return call;
}

}  // namespace ckptfs
