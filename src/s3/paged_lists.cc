// SPDX-License-Identifier: Apache-2.0
#include "s3/paged_lists.h"

#include <cerrno>
#include <utility>

#include "s3/call.h"
#include "s3/xml.h"

namespace ckptfs::s3 {
namespace {

class UploadLister : public std::enable_shared_from_this<UploadLister> {
public:
    UploadLister(std::shared_ptr<RequestSender> sender, std::string prefix, StoreDone<std::vector<OpenUpload>> done)
        : sender_(std::move(sender)), prefix_(std::move(prefix)), done_(std::move(done)) {}

    void next_page() {
        sender_->send(make_simple_call<UploadPage>(
            list_uploads_request(prefix_, key_marker_, upload_id_marker_, encoded_),
            [](const HttpResponse& response) { return parse_upload_page(response.body); },
            [self = shared_from_this()](Result<UploadPage> page) { self->take(std::move(page)); }));
    }

private:
    void take(Result<UploadPage> page) {
        if (!page) {
            done_(failure(std::move(page.error())));
            return;
        }
        if (encoded_ && !page->are_keys_known) {
            // radosgw encodes keys, and does not say so.
            encoded_ = false;
            next_page();
            return;
        }
        for (OpenUpload& upload : page->uploads) {
            uploads_.push_back(std::move(upload));
        }
        if (!page->truncated) {
            done_(std::move(uploads_));
            return;
        }
        if (page->next_key_marker == key_marker_ && page->next_upload_id_marker == upload_id_marker_) {
            done_(repeats_a_page("ListMultipartUploads"));
            return;
        }
        key_marker_ = std::move(page->next_key_marker);
        upload_id_marker_ = std::move(page->next_upload_id_marker);
        next_page();
    }

    const std::shared_ptr<RequestSender> sender_;
    const std::string prefix_;
    const StoreDone<std::vector<OpenUpload>> done_;
    std::vector<OpenUpload> uploads_;
    std::string key_marker_;
    std::string upload_id_marker_;
    bool encoded_ = true;
};

class PartLister : public std::enable_shared_from_this<PartLister> {
public:
    PartLister(std::shared_ptr<RequestSender> sender, UploadId upload, StoreDone<std::vector<UploadedPart>> done)
        : sender_(std::move(sender)), upload_(std::move(upload)), done_(std::move(done)) {}

    void next_page() {
        sender_->send(make_simple_call<PartPage>(
            list_parts_request(upload_, marker_),
            [](const HttpResponse& response) { return parse_part_page(response.body); },
            [self = shared_from_this()](Result<PartPage> page) { self->take(std::move(page)); }));
    }

private:
    void take(Result<PartPage> page) {
        if (!page) {
            done_(failure(std::move(page.error())));
            return;
        }
        for (UploadedPart& part : page->parts) {
            parts_.push_back(std::move(part));
        }
        if (!page->truncated) {
            done_(std::move(parts_));
            return;
        }
        if (page->next_part_number_marker <= marker_) {
            done_(repeats_a_page("ListParts"));
            return;
        }
        marker_ = page->next_part_number_marker;
        next_page();
    }

    const std::shared_ptr<RequestSender> sender_;
    const UploadId upload_;
    const StoreDone<std::vector<UploadedPart>> done_;
    std::vector<UploadedPart> parts_;
    int marker_ = 0;
};

}  // namespace

Failure repeats_a_page(const char* operation) {
    return failure(EPROTO, std::string(operation) + ": the store repeats a page of its list");
}

void list_all_uploads(const std::shared_ptr<RequestSender>& sender, const std::string& prefix,
                      StoreDone<std::vector<OpenUpload>> done) {
    std::make_shared<UploadLister>(sender, prefix, std::move(done))->next_page();
}

void list_all_parts(const std::shared_ptr<RequestSender>& sender, const UploadId& upload,
                    StoreDone<std::vector<UploadedPart>> done) {
    std::make_shared<PartLister>(sender, upload, std::move(done))->next_page();
}

}  // namespace ckptfs::s3
