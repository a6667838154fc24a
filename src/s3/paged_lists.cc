// SPDX-License-Identifier: Apache-2.0
#include "s3/paged_lists.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "s3/call.h"
#include "s3/xml.h"

namespace ckptfs::s3 {
namespace {

// Bytes of a list per key, to compare lists by size (LateReads).
constexpr std::uint64_t kListedKey = 512;

// Fails if the page has other keys: callers take the prefix off the keys that they get.
Result<ListResponse> only_below(const std::string& prefix, ListResponse page) {
    const auto is_foreign = [&prefix](std::string_view key) { return !key.starts_with(prefix); };
    const auto object = std::find_if(page.objects.begin(), page.objects.end(),
                                     [&](const ObjectInfo& each) { return is_foreign(each.key); });
    const auto common = std::find_if(page.common_prefixes.begin(), page.common_prefixes.end(), is_foreign);
    if (object == page.objects.end() && common == page.common_prefixes.end()) {
        return page;
    }
    return failure(EPROTO,
                   format("ListObjectsV2: the store lists {}, which is not below {}: does a proxy change names?",
                          escaped(object != page.objects.end() ? object->key : *common), escaped(prefix)));
}

class PageLister : public std::enable_shared_from_this<PageLister> {
public:
    PageLister(std::shared_ptr<RequestSender> sender, ListRequest request, StoreDone<ListResponse> done)
        : sender_(std::move(sender)), request_(std::move(request)), done_(std::move(done)) {}

    void fetch() {
        const auto read = [prefix = request_.prefix](const HttpResponse& response) {
            return parse_list_result(response.body).and_then([&prefix](ListResponse page) {
                return only_below(prefix, std::move(page));
            });
        };
        const SharedCall call = make_simple_call<ListResponse>(
            list_request(request_), read,
            [self = shared_from_this()](Result<ListResponse> page) { self->take(std::move(page)); });
        // The lookup of a name is not compared with whole pages.
        call->kind =
            LateReads::kind_of(call->request.operation, static_cast<std::uint64_t>(request_.max_keys) * kListedKey);
        sender_->send(call);
    }

private:
    void take(Result<ListResponse> page) {
        if (!page) {
            done_(failure(std::move(page.error())));
            return;
        }
        const std::string& next = page->next_continuation_token;
        if (!request_.continuation_token.empty() && next == request_.continuation_token) {
            done_(repeats_a_page("ListObjectsV2"));
            return;
        }
        const std::size_t listed = page->objects.size() + page->common_prefixes.size();
        std::move(page->objects.begin(), page->objects.end(), std::back_inserter(whole_.objects));
        std::move(page->common_prefixes.begin(), page->common_prefixes.end(),
                  std::back_inserter(whole_.common_prefixes));
        whole_.next_continuation_token = next;
        request_.max_keys -=
            static_cast<int>(std::min<std::size_t>(listed, static_cast<std::size_t>(request_.max_keys)));
        if (next.empty() || request_.max_keys == 0 ||
            whole_.objects.size() + whole_.common_prefixes.size() >= kFewestListed) {
            done_(std::move(whole_));
            return;
        }
        request_.continuation_token = next;
        fetch();
    }

    const std::shared_ptr<RequestSender> sender_;
    ListRequest request_;
    const StoreDone<ListResponse> done_;
    ListResponse whole_;
};

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

void list_page(const std::shared_ptr<RequestSender>& sender, ListRequest request, StoreDone<ListResponse> done) {
    std::make_shared<PageLister>(sender, std::move(request), std::move(done))->fetch();
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
