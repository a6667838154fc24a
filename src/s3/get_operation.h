// SPDX-License-Identifier: Apache-2.0
// GetObject that resumes where it was cut off.
//
// Every attempt after the first byte asks for the rest only, pinned by the ETag that was seen; the head of each reply
// is checked before one byte of it is handed on, so that bytes come once, in order, and of one version, even from a
// store that ignores If-Match. A whole object fails with EIO if its bytes do not match the checksum that the store
// keeps, or an ETag that is an MD5.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "ckptfs/object_store.h"
#include "s3/call.h"
#include "s3/late_reads.h"
#include "s3/request_sender.h"
#include "s3/whole_check.h"

namespace ckptfs::s3 {

class GetOperation : public std::enable_shared_from_this<GetOperation> {
public:
    // `checksums`: the store may be asked for the checksum that it keeps.
    GetOperation(std::shared_ptr<RequestSender> sender, bool checksums, GetRequest request,
                 StoreDone<GetResponse> done);
    void start();

private:
    void send();
    [[nodiscard]] HttpHeaders attempt_headers() const;
    [[nodiscard]] std::optional<LateReads::Kind> kind() const;
    [[nodiscard]] Status take_head(const HttpResponse& head);
    [[nodiscard]] Status take_first_head(const HttpResponse& head);
    [[nodiscard]] bool is_another_version(const ObjectInfo& answered) const;
    [[nodiscard]] bool is_unidentified() const;
    void identify();
    [[nodiscard]] ByteRange missing() const;
    [[nodiscard]] Status take_resumed_head(const HttpResponse& head);
    [[nodiscard]] bool take_body(ByteSpan bytes, Call& call);
    void finish(Result<HttpResponse> outcome);
    void answer_without_body(Error range_error);

    const std::shared_ptr<RequestSender> sender_;
    const bool checksums_;
    GetRequest request_;
    StoreDone<GetResponse> done_;
    const std::shared_ptr<RetryState> retry_ = std::make_shared<RetryState>();

    // Set by the first head that is accepted.
    std::optional<GetResponse> response_;
    std::uint64_t delivered_ = 0;
    bool range_adjusted_ = false;
    // All bytes had come when the connection broke: the last one is requested again, and skipped.
    bool only_its_end_ = false;
    // The ETag in the first reply; empty if it had none.
    std::string answered_etag_;
    // Set only for a whole object.
    std::optional<WholeCheck> check_;
};

}  // namespace ckptfs::s3
