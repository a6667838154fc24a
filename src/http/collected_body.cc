// SPDX-License-Identifier: Apache-2.0
#include "http/collected_body.h"

#include <algorithm>
#include <cerrno>

#include "base/text.h"

namespace ckptfs {

bool CollectedBodies::take(std::size_t bytes) {
    std::size_t taken = taken_.load();
    do {
        if (bytes > most_ - taken) {
            return false;
        }
    } while (!taken_.compare_exchange_weak(taken, taken + bytes));
    return true;
}

CollectedBody::~CollectedBody() {
    if (all_ != nullptr) {
        all_->give_back(taken_);
    }
}

bool CollectedBody::take_head(std::size_t bytes) {
    head_ += bytes;
    if (head_ > kMostOfAHead) {
        end_ = End::kTooLarge;
        limit_ = kMostOfAHead;
    }
    return end_ == End::kNone;
}

bool CollectedBody::take(HttpResponse& response, ByteSpan bytes, std::size_t most) {
    const bool is_error = response.status < 200 || response.status >= 300;
    most = is_error ? kMostOfAnError : most;
    const std::size_t room = most - std::min(most, response.body.size());
    if (bytes.size() > room) {
        end_ = is_error ? End::kCut : End::kTooLarge;
        limit_ = most;
        bytes = bytes.first(is_error ? room : 0);
    }
    if (!all_->take(bytes.size())) {
        end_ = is_error ? End::kCut : End::kNoRoom;
        return false;
    }
    taken_ += bytes.size();
    response.body.append(as_text(bytes));
    return end_ == End::kNone;
}

std::optional<Error> CollectedBody::unusable(const std::string& authority, int status) const {
    Error error;
    error.outcome_unknown = true;
    if (end_ == End::kTooLarge) {
        error.errno_value = EMSGSIZE;
        error.http_status = status;
        error.message = format("{}: the response is larger than {} bytes", authority, limit_);
        return error;
    }
    if (end_ == End::kNoRoom) {
        // The others give up their room in time.
        error.errno_value = ENOBUFS;
        error.retryable = true;
        error.message = format("{}: too many large responses at once", authority);
        return error;
    }
    return std::nullopt;
}

}  // namespace ckptfs
