// SPDX-License-Identifier: Apache-2.0
#include "s3/s3_store.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "aws/times.h"
#include "base/digest.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "s3/call.h"
#include "s3/commit_operation.h"
#include "s3/complete_operation.h"
#include "s3/copy_condition.h"
#include "s3/delete_operation.h"
#include "s3/get_operation.h"
#include "s3/head_operation.h"
#include "s3/paged_lists.h"
#include "s3/responses.h"
#include "s3/version_pin.h"
#include "s3/xml.h"

namespace ckptfs::s3 {
namespace {

RequestDefaults defaults_of(const StoreConfig& config) {
    const bool with_key = config.encryption.empty() && !config.kms_key_id.empty();
    return {config.bucket, config.storage_class, config.checksum != "none", with_key ? "aws:kms" : config.encryption,
            config.kms_key_id};
}

Failure damaged(const std::string& ours, std::string_view theirs) {
    Error error;
    // As if the store had found it itself: tried once more, then final.
    error.s3_code = "BadDigest";
    error.retryable = true;
    error.message = format("the store's checksum {} differs from {}", theirs, ours);
    return Failure(std::move(error));
}

Failure incomplete_answer(const char* what) {
    Error error;
    error.errno_value = EPROTO;
    error.retryable = true;
    error.outcome_unknown = true;
    error.message = format("the answer holds no {}", what);
    return Failure(std::move(error));
}

std::string sent_checksum(const S3Request& request) {
    for (const auto& [name, value] : request.headers) {
        if (name == "x-amz-checksum-crc32c") {
            return value;
        }
    }
    return {};
}

// Names in StoreHabits.
constexpr const char* kPartCopy = "UploadPartCopy";
constexpr const char* kNoPartCopy = "no UploadPartCopy";

// Notes what an error of UploadPartCopy shows about the store.
void note_part_copy(RequestSender& sender, const Error& error) {
    const bool lacks = is_not_implemented(error) || error.http_status == 405;
    if (lacks && sender.habits().note(kNoPartCopy)) {
        log_warning(
            "the store has no UploadPartCopy: what is appended to, changed in place, or renamed above 5 GiB is fetched "
            "and uploaded again as a whole");
    } else if (!lacks && error.http_status != 0 && !error.retryable) {
        sender.habits().note(kPartCopy);
    }
}

// A store that sends no checksum has accepted the one it was sent.
Status compare_checksum(const std::string& ours, const HttpResponse& response) {
    const std::string_view theirs = response.header("x-amz-checksum-crc32c");
    return ours.empty() || theirs.empty() || theirs == ours ? Status{} : damaged(ours, theirs);
}

// The time of the reply stands for that of the object, which no reply to a write carries.
WallTime answered_at(const HttpResponse& response) {
    return parse_http_date(response.header("date")).value_or(WallTime{});
}

Result<PutResponse> read_put(const HttpResponse& response, const std::string& checksum) {
    if (Status same = compare_checksum(checksum, response); !same) {
        return failure(std::move(same.error()));
    }
    const std::string_view etag = response.header("etag");
    if (etag.empty()) {
        return incomplete_answer("ETag");
    }
    return PutResponse{quoted_etag(std::string(etag)), answered_at(response)};
}

Result<PutResponse> read_written(Result<WrittenObject> written, const HttpResponse& response) {
    if (!written) {
        return failure(std::move(written.error()));
    }
    return PutResponse{std::move(written->etag), written->last_modified.value_or(answered_at(response))};
}

std::string write_id_in(const Metadata& metadata) {
    const auto found = metadata.find(kWriteIdMetadata);
    return found == metadata.end() ? "" : found->second;
}

int precondition_errno(bool if_none_match) {
    return if_none_match ? EEXIST : ESTALE;
}

}  // namespace

S3Store::S3Store(const StoreConfig& config, Endpoint endpoint, S3Dependencies dependencies)
    : defaults_(defaults_of(config)),
      server_(endpoint.server),
      sender_(std::make_shared<RequestSender>(config, std::move(endpoint), std::move(dependencies))),
      copy_condition_(std::make_shared<CopyCondition>(sender_, defaults_)) {}

S3Store::~S3Store() {
    sender_->stop();
}

void S3Store::head(std::string key, StoreDone<ObjectInfo> done) {
    head_object(sender_, key, std::make_shared<RetryState>(), std::move(done));
}

void S3Store::get(GetRequest request, StoreDone<GetResponse> done) {
    std::make_shared<GetOperation>(sender_, defaults_.checksums, std::move(request), std::move(done))->start();
}

void S3Store::put(PutRequest request, StoreDone<PutResponse> done) {
    auto call = std::make_shared<Call>();
    call->request = put_request(defaults_, request);
    call->precondition_errno = precondition_errno(request.if_none_match);
    call->may_send = std::move(request.may_send);
    if (defaults_.checksums && !request.crc32c) {
        call->prepare = [](S3Request& put) {
            put.headers.emplace_back("x-amz-checksum-crc32c", crc32c_base64(crc32c(put.body)));
        };
    }
    // The checksum is looked up when the reply is read: it may have been computed only before the first attempt.
    auto read = [raw = call.get()](const HttpResponse& response) {
        return read_put(response, sent_checksum(raw->request));
    };
    std::make_shared<CommitOperation>(sender_, std::move(call), write_id_in(request.metadata), std::move(read),
                                      std::move(done), pin("if-match", request.key, request.if_match))
        ->start();
}

void S3Store::copy(CopyRequest request, StoreDone<PutResponse> done) {
    auto call = std::make_shared<Call>();
    call->request = copy_request(defaults_, request);
    call->precondition_errno = precondition_errno(request.if_none_match);
    call->stall_timeout_factor = kSlowAnswerFactor;
    call->may_send = std::move(request.may_send);
    auto read = [](const HttpResponse& response) { return read_written(parse_copy_result(response.body), response); };
    std::make_shared<CommitOperation>(
        sender_, std::move(call), request.description ? write_id_in(request.description->metadata) : "",
        std::move(read), std::move(done), pin(kSourceIfMatch, request.source_key, request.source_if_match))
        ->start();
}

void S3Store::list(ListRequest request, StoreDone<ListResponse> done) {
    list_page(sender_, std::move(request), std::move(done));
}

void S3Store::remove(RemoveRequest request, StoreDone<void> done) {
    delete_object(sender_, request, std::move(done));
}

void S3Store::remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) {
    delete_objects(sender_, defaults_, std::move(requests), std::move(done));
}

void S3Store::create_upload(CreateUploadRequest request, StoreDone<UploadId> done) {
    sender_->send(make_simple_call<UploadId>(
        create_upload_request(defaults_, request),
        [key = request.key](const HttpResponse& response) -> Result<UploadId> {
            Result<CreatedUpload> created = parse_created_upload(response.body);
            if (!created) {
                return failure(std::move(created.error()));
            }
            return UploadId{key, std::move(created->upload_id)};
        },
        std::move(done)));
}

void S3Store::upload_part(UploadPartRequest request, StoreDone<UploadedPart> done) {
    S3Request part = upload_part_request(defaults_, request);
    auto read = [number = request.part_number, size = request.body.size(),
                 checksum = sent_checksum(part)](const HttpResponse& response) -> Result<UploadedPart> {
        Result<PutResponse> written = read_put(response, checksum);
        if (!written) {
            return failure(std::move(written.error()));
        }
        return UploadedPart{number, std::move(written->etag), checksum, size};
    };
    sender_->send(make_simple_call<UploadedPart>(std::move(part), std::move(read), std::move(done)));
}

void S3Store::upload_part_copy(UploadPartCopyRequest request, StoreDone<UploadedPart> done) {
    auto read = [number = request.part_number, size = request.range ? request.range->length : 0,
                 checksums = defaults_.checksums](const HttpResponse& response) -> Result<UploadedPart> {
        Result<WrittenObject> written = parse_copy_result(response.body);
        if (!written) {
            return failure(std::move(written.error()));
        }
        return UploadedPart{number, std::move(written->etag), checksums ? std::move(written->checksum_crc32c) : "",
                            size};
    };
    if (lacks_part_copy(request.source_key)) {
        const bool has_none = sender_->habits().has(kNoPartCopy);
        done(failure(EOPNOTSUPP, request_name("UploadPartCopy", defaults_.bucket, request.upload.key) +
                                     (has_none ? ": the store has no UploadPartCopy"
                                               : ": not used where the source's key contains a percent sign")));
        return;
    }
    auto answered = [sender = sender_, done = std::move(done)](Result<UploadedPart> part) {
        if (part) {
            sender->habits().note(kPartCopy);
        } else {
            note_part_copy(*sender, part.error());
        }
        done(std::move(part));
    };
    auto call = make_simple_call<UploadedPart>(upload_part_copy_request(defaults_, request), std::move(read),
                                               std::move(answered));
    call->stall_timeout_factor = kSlowAnswerFactor;
    if (request.source_if_match.empty()) {
        sender_->send(call);
        return;
    }
    copy_condition_->find_out(
        request, [sender = sender_, call,
                  pinned = pin(kSourceIfMatch, request.source_key, request.source_if_match)](const Status& found) {
            if (found) {
                send_pinned(sender, call, pinned);
            } else {
                std::exchange(call->done, nullptr)(failure(found.error()));
            }
        });
}

bool S3Store::lacks_part_copy(const std::string& source_key) const {
    // Ceph's gateway decodes this key twice: for "p%20q" it copies "p q" if that exists, without an error.
    return source_key.find('%') != std::string::npos || sender_->habits().has(kNoPartCopy);
}

// Copies a part to an upload that does not exist: that has no effect, and only a store that copies parts says why.
void S3Store::find_part_copy(std::string key, std::function<void()> found) {
    if (sender_->habits().has(kNoPartCopy) || sender_->habits().has(kPartCopy)) {
        found();
        return;
    }
    UploadPartCopyRequest request;
    request.upload = {key, "ckptfs-looks-for-UploadPartCopy"};
    request.part_number = 1;
    request.source_key = std::move(key);
    // Ceph's gateway ends with an assertion if it cannot decode the key once more, as with "50%".
    std::replace(request.source_key.begin(), request.source_key.end(), '%', '-');
    auto call = std::make_shared<Call>();
    call->request = upload_part_copy_request(defaults_, request);
    call->done = [sender = sender_, found = std::move(found)](const Result<HttpResponse>& outcome) {
        if (!outcome) {
            note_part_copy(*sender, outcome.error());
        }
        found();
    };
    sender_->send(call);
}

std::shared_ptr<VersionPin> S3Store::pin(const char* header, const std::string& key, const std::string& etag) const {
    return etag.empty() ? nullptr : std::make_shared<VersionPin>(sender_, header, key, etag);
}

void S3Store::complete_upload(CompleteRequest request, StoreDone<PutResponse> done) {
    auto commit = [sender = sender_](const CompleteRequest& complete, StoreDone<PutResponse> answered) {
        auto call = std::make_shared<Call>();
        call->request = complete_request(complete);
        call->precondition_errno = precondition_errno(complete.if_none_match);
        call->stall_timeout_factor = kSlowAnswerFactor;
        call->may_send = complete.may_send;
        auto read = [](const HttpResponse& response) {
            return read_written(parse_complete_result(response.body), response);
        };
        std::make_shared<CommitOperation>(sender, std::move(call), complete.write_id, std::move(read),
                                          std::move(answered))
            ->start();
    };
    std::make_shared<CompleteOperation>(sender_, std::move(commit), std::move(request), std::move(done))->start();
}

void S3Store::abort_upload(UploadId upload, StoreDone<void> done) {
    auto call = std::make_shared<Call>();
    call->request = abort_request(upload);
    call->done = [done = std::move(done)](Result<HttpResponse> outcome) {
        const bool ended = outcome || is_upload_gone(outcome.error());
        done(ended ? Status{} : failure(std::move(outcome.error())));
    };
    sender_->send(call);
}

void S3Store::list_uploads(std::string prefix, StoreDone<std::vector<OpenUpload>> done) {
    list_all_uploads(sender_, prefix, std::move(done));
}

void S3Store::list_parts(UploadId upload, StoreDone<std::vector<UploadedPart>> done) {
    list_all_parts(sender_, upload, std::move(done));
}

Result<std::unique_ptr<S3Store>> make_s3_store(const StoreConfig& config, const Environment& environment,
                                               S3Dependencies dependencies) {
    Result<Profile> profile = read_profile(profile_files(environment), profile_name(config.profile, environment));
    if (!profile) {
        return failure(std::move(profile.error()));
    }
    Result<Endpoint> endpoint = resolve_endpoint(config, environment, *profile);
    if (!endpoint) {
        return failure(std::move(endpoint.error()));
    }
    return std::make_unique<S3Store>(config, std::move(*endpoint), std::move(dependencies));
}

}  // namespace ckptfs::s3
