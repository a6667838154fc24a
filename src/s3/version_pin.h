// SPDX-License-Identifier: Apache-2.0
// A request that must take effect on one version only (If-Match, x-amz-copy-source-if-match), for stores that evaluate
// this differently from S3.
//
// A refusal is believed if another version is there. If the requested one is there, the store does not mean what it
// says: some versions of radosgw compare If-Match of a write with the ETag without its quotes; OpenStack Swift accepts
// none on writes (501), and its release 2.30 refuses every pinned copy of what was uploaded in parts. Then the
// condition is sent as that store understands it, or not at all; without it the version is checked with HEAD before
// each attempt and after the last, which leaves others a moment in between. What the store was found to accept for an
// operation, twice, is sent at once from then on (store_habits.h), and one line of the log says so.
//
// Ownership: shared; its callbacks keep it alive. Threads: those of the call that it belongs to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "ckptfs/object_store.h"
#include "s3/call.h"
#include "s3/request_sender.h"

namespace ckptfs::s3 {

inline constexpr const char* kSourceIfMatch = "x-amz-copy-source-if-match";

// The name in StoreHabits of a condition that a store may evaluate in its own way. `etag`: the one that is demanded.
[[nodiscard]] std::string condition_kind(std::string_view header, std::string_view operation, std::string_view etag);
// Compares ETags without their quotes, which some stores leave out.
[[nodiscard]] bool is_same_version(std::string_view etag, std::string_view other);

class VersionPin : public std::enable_shared_from_this<VersionPin> {
public:
    // `header` of the call demands this version of `key`.
    VersionPin(std::shared_ptr<RequestSender> sender, std::string header, std::string key, std::string etag)
        : sender_(std::move(sender)), header_(std::move(header)), key_(std::move(key)), etag_(std::move(etag)) {}

    // Called before the call is sent: changes it to what this store is known to accept. A failure: the version is not
    // there, or the HEAD failed.
    void prepare(const SharedCall& call, std::function<void(Status)> prepared);
    // Whether this may be a refusal of the condition that says nothing about the version.
    [[nodiscard]] bool may_be_misjudged(const Error& error) const;
    // Checks the version with HEAD after a refusal. Success: it is there, and the call has been changed and is to be
    // sent again. A failure: what the refusal means.
    void look(const SharedCall& call, Error refusal, std::function<void(Status again)> decided);
    // The condition is not sent: HEADs take its place.
    [[nodiscard]] bool is_left_out() const { return sent_ == SentCondition::kNotAtAll; }
    // Called before a call is sent again: checks that the version is still there, if the condition is left out.
    void look_again(const SharedCall& call, std::function<void(Status)> looked) const;
    // Called after a success: checks that the version was there, if the condition is left out. `written`: the ETag that
    // the call has written under the key, empty for a copy's source.
    void confirm(const SharedCall& call, const std::string& written, std::function<void(Status)> confirmed);

private:
    [[nodiscard]] std::string kind(const Call& call) const {
        return condition_kind(header_, call.request.operation, etag_);
    }
    void send_as(Call& call, SentCondition sent);
    // Fails as the condition would if another version than `etag` is there.
    void expect(const SharedCall& call, std::string etag, std::function<void(Status)> looked) const;
    void tell() const;

    const std::shared_ptr<RequestSender> sender_;
    const std::string header_;
    const std::string key_;
    const std::string etag_;
    SentCondition sent_ = SentCondition::kAsInS3;
    // The last refusal was by a store that knows the condition.
    bool was_judged_ = false;
};

// Sends a call that is not a commit; `pin` may be null.
void send_pinned(const std::shared_ptr<RequestSender>& sender, const SharedCall& call,
                 const std::shared_ptr<VersionPin>& pin);

}  // namespace ckptfs::s3
