// SPDX-License-Identifier: Apache-2.0
#include "s3/delete_operation.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/digest.h"
#include "base/mutex.h"
#include "ckptfs/log.h"
#include "s3/error_table.h"
#include "s3/head_operation.h"
#include "s3/version_pin.h"
#include "s3/xml.h"

namespace ckptfs::s3 {
namespace {

constexpr std::size_t kMaxKeys = 1000;
// The name of this condition in StoreHabits.
constexpr const char* kPinnedDelete = "if-match of DeleteObject";

bool is_absent(const Error& error) {
    return error.s3_code == "NoSuchKey";
}

// The version is gone, or was replaced after an attempt of this call that may have removed it.
bool is_gone(const Error& error, const RemoveRequest& request) {
    return is_absent(error) || (error.errno_value == ESTALE && error.outcome_unknown && !request.is_judged_by_caller);
}

// Codes of stores that want MD5, or know no other checksum here. Amazon S3 sent InvalidRequest before it knew others.
bool may_want_md5(const Error& error) {
    constexpr auto kCodes =
        std::to_array<std::string_view>({"MissingContentMD5", "InvalidRequest", "InvalidArgument", "MissingArgument",
                                         "InvalidDigest", "BadRequest", "NotImplemented"});
    return std::find(kCodes.begin(), kCodes.end(), error.s3_code) != kCodes.end();
}

void add_checksum(S3Request& request, const std::optional<Md5>& md5) {
    if (md5) {
        request.headers.emplace_back("content-md5", base64_encode(*md5));
        return;
    }
    request.headers.emplace_back("x-amz-sdk-checksum-algorithm", "CRC32C");
    request.headers.emplace_back("x-amz-checksum-crc32c", crc32c_base64(crc32c(request.body)));
}

// The result refers to the keys in `all`, and must not outlive them.
template <class Each>
std::set<std::string_view> keys_of(const std::vector<Each>& all) {
    std::set<std::string_view> keys;
    for (const Each& each : all) {
        keys.insert(each.key);
    }
    return keys;
}

class DeleteOperation : public std::enable_shared_from_this<DeleteOperation> {
public:
    DeleteOperation(std::shared_ptr<RequestSender> sender, bool checksums, const char* md5_properties,
                    StoreDone<std::vector<DeleteFailure>> done)
        : sender_(std::move(sender)),
          md5_properties_(md5_properties),
          uses_md5_(!checksums || sender_->deletes_want_md5()),
          done_(std::move(done)) {}

    void start(std::vector<RemoveRequest> requests) {
        const auto odd = std::stable_partition(requests.begin(), requests.end(), [](const RemoveRequest& request) {
            return is_plain_in_xml(request.key);
        });
        const std::vector<RemoveRequest> alone(odd, requests.end());
        requests.erase(odd, requests.end());
        together_ = std::move(requests);
        {
            const MutexLock lock(mutex_);
            answers_due_ = alone.size() + (together_.empty() ? 0 : 1);
        }
        send_alone(alone);
        if (!together_.empty()) {
            send_together();
        }
    }

private:
    void send_alone(const std::vector<RemoveRequest>& requests) {
        for (RemoveRequest request : requests) {
            request.is_judged_by_caller = true;
            delete_object(sender_, request, [self = shared_from_this(), key = request.key](Status removed) {
                self->answered([&]() REQUIRES(self->mutex_) {
                    if (!removed) {
                        self->failures_.push_back({key, std::move(removed.error())});
                    }
                });
            });
        }
    }

    void send_together() {
        std::optional<S3Request> request = batch_request();
        if (!request) {
            give_up_on_batches();
            return;
        }
        auto call = std::make_shared<Call>();
        call->request = std::move(*request);
        call->may_send = [self = shared_from_this()] { return self->may_send(); };
        call->accept = [self = shared_from_this(), raw = call.get()](const HttpResponse& response) {
            return self->read(*raw, response);
        };
        call->done = [self = shared_from_this(), retry = call->retry](Result<HttpResponse> outcome) {
            self->batch_answered(std::move(outcome), *retry);
        };
        sender_->send(call);
    }

    // The request for the keys in together_; empty if it needs an MD5 that this machine does not have.
    [[nodiscard]] std::optional<S3Request> batch_request() const {
        S3Request request = delete_many_request(together_);
        std::optional<Md5> digest;
        if (uses_md5_) {
            digest = md5(request.body, md5_properties_);
            if (!digest) {
                return std::nullopt;
            }
        }
        // A thousand keys: that takes microseconds.
        add_checksum(request, digest);
        return request;
    }

    [[nodiscard]] bool may_send() const {
        return std::all_of(together_.begin(), together_.end(),
                           [](const RemoveRequest& request) { return !request.may_send || request.may_send(); });
    }

    // A key whose failure may pass fails the whole request for the sender, which retries it with backoff.
    Status read(Call& call, const HttpResponse& response) {
        Result<std::vector<KeyFailure>> parsed = parse_delete_result(response.body);
        if (!parsed) {
            return failure(std::move(parsed.error()));
        }
        batch_failures_.clear();
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
            if (error.retryable && !passing) {
                passing = error;
            }
            batch_failures_.push_back({std::move(failed.key), std::move(error)});
        }
        if (!passing) {
            return {};
        }
        narrow_to_passing(call);
        return failure(std::move(*passing));
    }

    // The next attempt names only the keys that may still be deleted: another mount may have written the deleted ones
    // again by then.
    void narrow_to_passing(Call& call) {
        const auto was_asked = [asked = keys_of(together_)](const DeleteFailure& failed) {
            return asked.contains(failed.key);
        };
        if (!std::all_of(batch_failures_.begin(), batch_failures_.end(), was_asked)) {
            // Keys in another spelling do not show which are deleted.
            return;
        }
        const auto refused = std::stable_partition(batch_failures_.begin(), batch_failures_.end(),
                                                   [](const DeleteFailure& failed) { return failed.error.retryable; });
        {
            const MutexLock lock(mutex_);
            note_failures({std::make_move_iterator(refused), std::make_move_iterator(batch_failures_.end())},
                          call.retry->outcome_unknown);
        }
        batch_failures_.erase(refused, batch_failures_.end());
        std::erase_if(together_, [passing = keys_of(batch_failures_)](const RemoveRequest& request) {
            return !passing.contains(request.key);
        });
        call.before_retry = [self = shared_from_this()](const SharedCall& failed) {
            if (std::optional<S3Request> request = self->batch_request()) {
                failed->request = std::move(*request);
            }
            self->sender_->send(failed);
        };
    }

    // `outcome_unknown`: an earlier attempt may have deleted them. What has another version now the caller judges: it
    // may have been there before that attempt, which had no effect.
    void note_failures(std::vector<DeleteFailure> failures, bool outcome_unknown) REQUIRES(mutex_) {
        for (DeleteFailure& failed : failures) {
            failed.error.outcome_unknown = failed.error.outcome_unknown || outcome_unknown;
            if (!is_absent(failed.error)) {
                failures_.push_back(std::move(failed));
            }
        }
    }

    void batch_answered(Result<HttpResponse> outcome, const RetryState& retry) {
        if (!outcome && batch_failures_.empty() && ask_with_md5(outcome.error())) {
            return;
        }
        if (outcome && uses_md5_) {
            sender_->found_deletes_want_md5();
        }
        answered([&]() REQUIRES(mutex_) {
            // Some keys were given up and the others are gone, so the result names the former.
            if (!outcome && (batch_failures_.empty() || outcome.error().errno_value == ECANCELED)) {
                failed_ = std::move(outcome.error());
                return;
            }
            note_failures(std::move(batch_failures_), retry.outcome_unknown);
        });
    }

    // True if the same request is sent again, with MD5.
    bool ask_with_md5(const Error& error) {
        if (uses_md5_ || !may_want_md5(error)) {
            return false;
        }
        uses_md5_ = true;
        send_together();
        return true;
    }

    void give_up_on_batches() {
        {
            const MutexLock lock(mutex_);
            answers_due_ += together_.size() - 1;
        }
        send_alone(together_);
    }

    // Runs `take` under the lock; the last reply completes the operation.
    void answered(const std::function<void()>& take) {
        std::vector<DeleteFailure> failures;
        std::optional<Error> failed;
        {
            const MutexLock lock(mutex_);
            take();
            if (--answers_due_ > 0) {
                return;
            }
            failures = std::move(failures_);
            failed = std::move(failed_);
        }
        if (failed) {
            done_(failure(std::move(*failed)));
        } else {
            done_(std::move(failures));
        }
    }

    const std::shared_ptr<RequestSender> sender_;
    const char* const md5_properties_;
    // The keys of the batch, which one request at a time uses. Once a key was refused in a way that may pass: only such
    // keys.
    std::vector<RemoveRequest> together_;
    // The failures that the last reply named, except those in failures_.
    std::vector<DeleteFailure> batch_failures_;
    bool uses_md5_;
    const StoreDone<std::vector<DeleteFailure>> done_;

    Mutex mutex_;
    std::size_t answers_due_ GUARDED_BY(mutex_) = 0;
    std::vector<DeleteFailure> failures_ GUARDED_BY(mutex_);
    std::optional<Error> failed_ GUARDED_BY(mutex_);
};

// Removes one key, or only one version of it if that is given.
class SingleDelete : public std::enable_shared_from_this<SingleDelete> {
public:
    SingleDelete(std::shared_ptr<RequestSender> sender, RemoveRequest request, StoreDone<void> done)
        : sender_(std::move(sender)), request_(std::move(request)), done_(std::move(done)) {}

    void start() {
        if (!request_.if_match.empty() && sender_->habits().condition(kPinnedDelete) == SentCondition::kNotAtAll) {
            look_and_send();
        } else {
            send(request_, request_.if_match.empty() ? SentCondition::kNotAtAll : SentCondition::kAsInS3);
        }
    }

private:
    void send(const RemoveRequest& request, SentCondition sent) {
        auto call = std::make_shared<Call>();
        call->request = delete_request(request);
        call->retry = retry_;
        call->may_send = request_.may_send;
        if (sent == SentCondition::kNotAtAll && !request_.if_match.empty()) {
            call->before_retry = [self = shared_from_this()](const SharedCall& failed) {
                self->look([self, failed] { self->sender_->send(failed); });
            };
        }
        call->done = [self = shared_from_this(), sent](Result<HttpResponse> outcome) {
            self->answered(std::move(outcome), sent);
        };
        sender_->send(call);
    }

    void answered(Result<HttpResponse> outcome, SentCondition sent) {
        if (!outcome && sent == SentCondition::kAsInS3 && is_not_implemented(outcome.error())) {
            look_and_send();
            return;
        }
        if (!outcome && sent == SentCondition::kAsInS3 && is_condition_failed(outcome.error()) &&
            !is_gone(outcome.error(), request_)) {
            // Some stores refuse the ETag that they report themselves.
            was_refused_ = true;
            look_and_send();
            return;
        }
        if (outcome && !was_refused_ && !request_.if_match.empty() && sender_->habits().took(kPinnedDelete, sent)) {
            log_warning(
                "the store rejects If-Match on DeleteObject: checking the version with HEAD before instead; what "
                "another mount writes in between is removed as well");
        }
        done_(outcome || is_gone(outcome.error(), request_) ? Status() : failure(std::move(outcome.error())));
    }

    void look_and_send() {
        look([self = shared_from_this()] { self->send(RemoveRequest(self->request_.key), SentCondition::kNotAtAll); });
    }

    // Takes the place of the condition: what is there may be another mount's by now.
    void look(std::function<void()> is_there) {
        head_object(sender_, request_.key, retry_,
                    [self = shared_from_this(), is_there = std::move(is_there)](Result<ObjectInfo> object) {
                        const bool is_gone_now = !object && object.error().errno_value == ENOENT;
                        if (is_gone_now || (!object && !self->was_refused_)) {
                            self->done_(is_gone_now ? Status() : failure(std::move(object.error())));
                        } else if (object && is_same_version(object->etag, self->request_.if_match)) {
                            is_there();
                        } else {
                            // Also if the HEAD failed: the store has said that it is another version.
                            Error error =
                                condition_failed("DeleteObject", self->sender_->bucket(), self->request_.key, ESTALE);
                            error.outcome_unknown = self->retry_->outcome_unknown;
                            self->done_(is_gone(error, self->request_) ? Status() : failure(std::move(error)));
                        }
                    });
    }

    const std::shared_ptr<RequestSender> sender_;
    const RemoveRequest request_;
    const StoreDone<void> done_;
    const std::shared_ptr<RetryState> retry_ = std::make_shared<RetryState>();
    // The store refused the ETag, although it may accept others.
    bool was_refused_ = false;
};

}  // namespace

void delete_object(const std::shared_ptr<RequestSender>& sender, const RemoveRequest& request, StoreDone<void> done) {
    std::make_shared<SingleDelete>(sender, request, std::move(done))->start();
}

void delete_objects(const std::shared_ptr<RequestSender>& sender, const RequestDefaults& defaults,
                    std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done,
                    const char* md5_properties) {
    if (requests.empty()) {
        done(std::vector<DeleteFailure>{});
        return;
    }
    if (requests.size() > kMaxKeys) {
        done(failure(EINVAL, "DeleteObjects: more than 1,000 keys in one request"));
        return;
    }
    std::make_shared<DeleteOperation>(sender, defaults.checksums, md5_properties, std::move(done))
        ->start(std::move(requests));
}

}  // namespace ckptfs::s3
