// SPDX-License-Identifier: Apache-2.0
// CompleteMultipartUpload, also if a part has another ETag than the one in its reply.
//
// A part whose first attempt was given up may arrive after the second one and replace it. The bytes are the same, but
// where ETags are not their MD5 (SSE-KMS, and stores of other makers) the commit is refused with InvalidPart. The parts
// are then listed: one that has our size and our checksum is ours, whatever its ETag.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ckptfs/object_store.h"
#include "s3/request_sender.h"

namespace ckptfs::s3 {

class CompleteOperation : public std::enable_shared_from_this<CompleteOperation> {
public:
    // One request, with its retries.
    using Commit = std::function<void(const CompleteRequest&, StoreDone<PutResponse>)>;

    CompleteOperation(std::shared_ptr<RequestSender> sender, Commit commit, CompleteRequest request,
                      StoreDone<PutResponse> done);
    void start();

private:
    void on_answer(Result<PutResponse> response);
    void on_parts(Error error, Result<std::vector<UploadedPart>> stored);

    const std::shared_ptr<RequestSender> sender_;
    const Commit commit_;
    CompleteRequest request_;
    const StoreDone<PutResponse> done_;
    int looks_left_;
};

// What ListParts says about the parts that we sent.
enum class PartsFound : std::uint8_t {
    // All have the ETags that we know.
    kAsSent,
    kUnderOtherETags,
    // A part is not there, or may hold other bytes.
    kOthers,
};

// Replaces the ETags in `parts` by those that the same bytes have in `stored`; changes `parts` only if it returns
// kUnderOtherETags.
PartsFound take_stored_etags(std::vector<UploadedPart>& parts, const std::vector<UploadedPart>& stored);

}  // namespace ckptfs::s3
