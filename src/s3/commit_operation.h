// SPDX-License-Identifier: Apache-2.0
// Requests that publish an object (PutObject, CompleteMultipartUpload, CopyObject), and what happens when their reply
// is lost.
//
// After a timeout, a reset, a 5xx that may have taken effect, 404 NoSuchUpload or 412, the key is checked with HEAD
// before anything is reported: if it carries this commit's write id, the commit has succeeded. If not, what can be
// retried is retried, and the rest is reported.
//
// A commit that is pinned to a version (version_pin.h) goes on if the store evaluates the condition differently from
// S3.
//
// If the store reports for a success that it holds other bytes than those sent, the request is sent once more. If that
// is refused because of what the first attempt has left, the damage is reported.
//
// If a store refuses If-None-Match (501), the key is checked with HEAD before each attempt instead, and the request is
// sent without the header if nothing is there. Of two conditions, If-None-Match is left out first, and put back if it
// was not what the store refused. What the store was found to accept for an operation is sent at once from then on
// (store_habits.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ckptfs/object_store.h"
#include "s3/call.h"
#include "s3/request_sender.h"
#include "s3/version_pin.h"

namespace ckptfs::s3 {

class CommitOperation : public std::enable_shared_from_this<CommitOperation> {
public:
    using Read = std::function<Result<PutResponse>(const HttpResponse&)>;

    // Without a write id the commit cannot be recognised, so lost replies are only retried.
    CommitOperation(std::shared_ptr<RequestSender> sender, SharedCall call, std::string write_id, Read read,
                    StoreDone<PutResponse> done, std::shared_ptr<VersionPin> pin = nullptr);
    void start();

private:
    [[nodiscard]] std::function<void(Result<HttpResponse>)> answer_handler();
    void on_answer(Result<HttpResponse> outcome);
    void settle(Error error);
    void settle_refusal(Error error);
    void send_again();
    // Takes the place of a further attempt, after its wait, if a condition is left out.
    void retry();
    [[nodiscard]] std::string guard_kind() const;
    // Removes If-None-Match; false if there is none.
    bool take_guard();
    void put_guard_back();
    void note_guard();
    // Sends the call if nothing is under the key, or only what this commit has left there damaged.
    void send_if_absent();
    [[nodiscard]] bool is_ours(const ObjectInfo& object) const;
    void note_damage(const Error& error, const HttpResponse& response);
    [[nodiscard]] bool is_damaged(const ObjectInfo& object) const;
    [[nodiscard]] Error damage() const;
    [[nodiscard]] Error taken() const;
    [[nodiscard]] bool is_in_the_way(const Error& error) const;
    [[nodiscard]] bool is_final(const Error& error) const;
    void look(Error error);
    void go_on(Error error);
    void finish(Result<PutResponse> response);

    const std::shared_ptr<RequestSender> sender_;
    SharedCall call_;
    const std::string write_id_;
    const bool is_copy_;
    const Read read_;
    StoreDone<PutResponse> done_;
    // Null if any version will do.
    const std::shared_ptr<VersionPin> pin_;
    PutResponse response_;
    // Error of the last attempt that the store accepted with other bytes, and the ETag that it gave them.
    std::optional<Error> damage_;
    std::string damaged_etag_;
    // has_guard_: If-None-Match was requested. without_guard_: it was left out.
    bool has_guard_ = false;
    bool without_guard_ = false;
};

}  // namespace ckptfs::s3
