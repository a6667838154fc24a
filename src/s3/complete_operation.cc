// SPDX-License-Identifier: Apache-2.0
#include "s3/complete_operation.h"

#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "s3/paged_lists.h"

namespace ckptfs::s3 {
namespace {

// More attempts of a part may still be on their way when the parts are listed.
constexpr int kMostLooks = 3;

}  // namespace

CompleteOperation::CompleteOperation(std::shared_ptr<RequestSender> sender, Commit commit, CompleteRequest request,
                                     StoreDone<PutResponse> done)
    : sender_(std::move(sender)),
      commit_(std::move(commit)),
      request_(std::move(request)),
      done_(std::move(done)),
      looks_left_(kMostLooks) {}

void CompleteOperation::start() {
    commit_(request_,
            [self = shared_from_this()](Result<PutResponse> response) { self->on_answer(std::move(response)); });
}

void CompleteOperation::on_answer(Result<PutResponse> response) {
    if (response || response.error().s3_code != "InvalidPart" || looks_left_ == 0) {
        done_(std::move(response));
        return;
    }
    --looks_left_;
    list_all_parts(
        sender_, request_.upload,
        [self = shared_from_this(), error = std::move(response.error())](
            Result<std::vector<UploadedPart>> stored) mutable { self->on_parts(std::move(error), std::move(stored)); });
}

void CompleteOperation::on_parts(Error error, Result<std::vector<UploadedPart>> stored) {
    if (!stored) {
        error.message += format("; its parts could not be compared: {}", stored.error().message);
        done_(failure(std::move(error)));
        return;
    }
    switch (take_stored_etags(request_.parts, *stored)) {
        case PartsFound::kOthers:
            error.message += "; a part is not there, or holds other bytes: write the file again";
            [[fallthrough]];
        case PartsFound::kAsSent:
            done_(failure(std::move(error)));
            return;
        case PartsFound::kUnderOtherETags:
            break;
    }
    log_info(format("{}: a part arrived twice, and has the ETag of its late attempt; its checksum is right",
                    escaped(request_.upload.key)));
    start();
}

PartsFound take_stored_etags(std::vector<UploadedPart>& parts, const std::vector<UploadedPart>& stored) {
    std::unordered_map<int, const UploadedPart*> by_number;
    for (const UploadedPart& part : stored) {
        by_number.emplace(part.part_number, &part);
    }
    std::vector<UploadedPart> renewed = parts;
    bool changed = false;
    for (UploadedPart& part : renewed) {
        const auto found = by_number.find(part.part_number);
        if (found == by_number.end()) {
            return PartsFound::kOthers;
        }
        const UploadedPart& there = *found->second;
        if (there.etag == part.etag) {
            continue;
        }
        if (part.checksum_crc32c.empty() || there.checksum_crc32c != part.checksum_crc32c || there.size != part.size) {
            return PartsFound::kOthers;
        }
        part.etag = there.etag;
        changed = true;
    }
    if (!changed) {
        return PartsFound::kAsSent;
    }
    parts = std::move(renewed);
    return PartsFound::kUnderOtherETags;
}

}  // namespace ckptfs::s3
