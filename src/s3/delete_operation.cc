// SPDX-License-Identifier: Apache-2.0
#include "s3/delete_operation.h"

#include <utility>

#include "base/digest.h"
#include "s3/error_table.h"
#include "s3/simple_call.h"
#include "s3/xml.h"

namespace ckptfs {
namespace {

constexpr std::size_t kMaxKeys = 1000;

// A failed key fails the whole request for the sender, which retries it with backoff; keys that were deleted already
// are deleted again, which is success.
class DeleteOperation : public std::enable_shared_from_this<DeleteOperation> {
public:
    DeleteOperation(std::shared_ptr<RequestSender> sender, std::vector<std::string> keys,
                    StoreDone<std::vector<DeleteFailure>> done)
        : sender_(std::move(sender)), keys_(std::move(keys)), done_(std::move(done)) {}

    void start() {
        auto call = std::make_shared<Call>();
        call->request = delete_many_request(keys_);
        // The operation needs a checksum of its body whatever the store thinks of the newer ones.
        call->prepare = [](S3Request& request) {
            request.headers.emplace_back("content-md5", base64_encode(md5(request.body)));
        };
        call->accept = [self = shared_from_this()](const HttpResponse& response) { return self->read(response); };
        call->done = [self = shared_from_this()](Result<HttpResponse> outcome) { self->finish(std::move(outcome)); };
        sender_->send(call);
    }

private:
    Status read(const HttpResponse& response) {
        Result<std::vector<KeyFailure>> parsed = parse_delete_result(response.body);
        if (!parsed) {
            return failure(std::move(parsed.error()));
        }
        failures_.clear();
        std::optional<Error> passing;
        for (KeyFailure& failed : *parsed) {
            FailedRequest request;
            request.operation = "DeleteObjects";
            request.bucket = sender_->bucket();
            request.key = failed.key;
            request.status = response.status;
            request.body = std::move(failed.error);
            request.request_id = response.header("x-amz-request-id");
            Error error = store_error(request);
            if (error.s3_code == "NoSuchKey") {
                continue;
            }
            if (error.retryable && !passing) {
                passing = error;
            }
            failures_.push_back({std::move(failed.key), std::move(error)});
        }
        return passing ? failure(std::move(*passing)) : Status{};
    }

    void finish(Result<HttpResponse> outcome) {
        // Given up on some keys: the others are gone, so the answer names those.
        if (!outcome && (failures_.empty() || outcome.error().errno_value == ECANCELED)) {
            done_(failure(std::move(outcome.error())));
            return;
        }
        done_(std::move(failures_));
    }

    const std::shared_ptr<RequestSender> sender_;
    const std::vector<std::string> keys_;
    const StoreDone<std::vector<DeleteFailure>> done_;
    std::vector<DeleteFailure> failures_;
};

}  // namespace

void delete_objects(const std::shared_ptr<RequestSender>& sender, std::vector<std::string> keys,
                    StoreDone<std::vector<DeleteFailure>> done) {
    if (keys.empty()) {
        done(std::vector<DeleteFailure>{});
        return;
    }
    if (keys.size() > kMaxKeys) {
        done(failure(EINVAL, "DeleteObjects: more than 1,000 keys in one request"));
        return;
    }
    std::make_shared<DeleteOperation>(sender, std::move(keys), std::move(done))->start();
}

}  // namespace ckptfs
