// SPDX-License-Identifier: Apache-2.0
#include "s3/version_pin.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "s3/error_table.h"
#include "s3/head_operation.h"

namespace ckptfs::s3 {
namespace {

std::string without_quotes(std::string_view etag) {
    const bool quoted = etag.size() >= 2 && etag.front() == '"' && etag.back() == '"';
    return std::string(quoted ? etag.substr(1, etag.size() - 2) : etag);
}

}  // namespace

bool is_same_version(std::string_view etag, std::string_view other) {
    return without_quotes(etag) == without_quotes(other);
}

// Swift evaluates the condition on the source of a copy by how that was uploaded; the ETag of a multipart upload ends
// in the number of its parts.
std::string condition_kind(std::string_view header, std::string_view operation, std::string_view etag) {
    const bool in_parts = header != "if-match" && etag.find('-') != std::string_view::npos;
    return std::string(header) + " of " + std::string(operation) + (in_parts ? " in parts" : "");
}

bool VersionPin::may_be_misjudged(const Error& error) const {
    return !is_left_out() && (is_condition_failed(error) || is_not_implemented(error));
}

void VersionPin::prepare(const SharedCall& call, std::function<void(Status)> prepared) {
    const SentCondition known = sender_->habits().condition(kind(*call));
    if (known == SentCondition::kAsInS3) {
        prepared({});
        return;
    }
    send_as(*call, known);
    if (known == SentCondition::kWithoutQuotes) {
        prepared({});
        return;
    }
    expect(call, etag_, std::move(prepared));
}

void VersionPin::expect(const SharedCall& call, std::string etag, std::function<void(Status)> looked) const {
    head_object(
        sender_, key_, call->retry,
        [self = shared_from_this(), precondition_errno = call->precondition_errno, operation = call->request.operation,
         etag = std::move(etag), looked = std::move(looked)](const Result<ObjectInfo>& object) {
            if (object && is_same_version(object->etag, etag)) {
                looked({});
                return;
            }
            if (!object && object.error().errno_value != ENOENT) {
                looked(failure(object.error()));
                return;
            }
            looked(failure(condition_failed(operation, self->sender_->bucket(), self->key_, precondition_errno)));
        });
}

void VersionPin::look(const SharedCall& call, Error refusal, std::function<void(Status again)> decided) {
    was_judged_ = !is_not_implemented(refusal);
    expect(call, etag_,
           [self = shared_from_this(), call, refusal = std::move(refusal),
            decided = std::move(decided)](const Status& is_there) {
               if (!is_there) {
                   // A refusal by a store that does not know the condition says nothing: the HEAD does.
                   decided(failure(self->was_judged_ ? refusal : is_there.error()));
                   return;
               }
               const bool has_quotes = without_quotes(self->etag_) != self->etag_;
               // The headers that it adds are there already.
               call->prepare = nullptr;
               self->send_as(*call, self->sent_ == SentCondition::kAsInS3 && self->header_ == "if-match" && has_quotes
                                        ? SentCondition::kWithoutQuotes
                                        : SentCondition::kNotAtAll);
               decided({});
           });
}

void VersionPin::look_again(const SharedCall& call, std::function<void(Status)> looked) const {
    if (is_left_out()) {
        expect(call, etag_, std::move(looked));
    } else {
        looked({});
    }
}

void VersionPin::send_as(Call& call, SentCondition sent) {
    sent_ = sent;
    HttpHeaders& headers = call.request.headers;
    const auto found =
        std::find_if(headers.begin(), headers.end(), [this](const auto& header) { return header.first == header_; });
    if (sent == SentCondition::kWithoutQuotes) {
        found->second = without_quotes(etag_);
    } else {
        headers.erase(found);
    }
}

void VersionPin::tell() const {
    if (sender_->habits().note(header_)) {
        log_warning(
            format("the store rejects {} although the version matches: checking with HEAD before and after instead; a "
                   "change by another mount in between is not noticed",
                   header_ == "if-match" ? "If-Match on writes" : header_));
    }
}

void VersionPin::confirm(const SharedCall& call, const std::string& written, std::function<void(Status)> confirmed) {
    // The success shows that the condition was in the way.
    const bool is_known = sender_->habits().took(kind(*call), sent_);
    if (!is_left_out()) {
        confirmed({});
        return;
    }
    // A proxy may not know the condition, once; a store that has evaluated it does so again.
    if (is_known || was_judged_) {
        tell();
    }
    expect(call, written.empty() ? etag_ : written, std::move(confirmed));
}

namespace {

void look_before_retries(const std::shared_ptr<RequestSender>& sender, Call& call,
                         const std::shared_ptr<VersionPin>& pin) {
    call.before_retry = [sender, pin](const SharedCall& failed) {
        pin->look_again(failed, [sender, failed](const Status& is_there) {
            if (is_there) {
                sender->send(failed);
            } else {
                std::exchange(failed->done, nullptr)(failure(is_there.error()));
            }
        });
    };
}

void send_once(const std::shared_ptr<RequestSender>& sender, const SharedCall& call,
               const std::shared_ptr<VersionPin>& pin) {
    call->done = [sender, raw = std::weak_ptr<Call>(call), pin,
                  done = std::move(call->done)](Result<HttpResponse> outcome) mutable {
        const SharedCall answered = raw.lock();
        if (outcome) {
            pin->confirm(answered, "", [done = std::move(done), outcome](const Status& confirmed) mutable {
                done(confirmed ? std::move(outcome) : failure(confirmed.error()));
            });
            return;
        }
        if (!pin->may_be_misjudged(outcome.error())) {
            done(std::move(outcome));
            return;
        }
        pin->look(answered, std::move(outcome.error()),
                  [sender, answered, pin, done = std::move(done)](const Status& again) mutable {
                      if (again) {
                          answered->done = std::move(done);
                          send_once(sender, answered, pin);
                      } else {
                          done(failure(again.error()));
                      }
                  });
    };
    if (pin->is_left_out()) {
        look_before_retries(sender, *call, pin);
    }
    sender->send(call);
}

}  // namespace

void send_pinned(const std::shared_ptr<RequestSender>& sender, const SharedCall& call,
                 const std::shared_ptr<VersionPin>& pin) {
    if (pin == nullptr) {
        sender->send(call);
        return;
    }
    pin->prepare(call, [sender, call, pin](const Status& prepared) {
        if (prepared) {
            send_once(sender, call, pin);
        } else {
            std::exchange(call->done, nullptr)(failure(prepared.error()));
        }
    });
}

}  // namespace ckptfs::s3
