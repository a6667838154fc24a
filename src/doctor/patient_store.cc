// SPDX-License-Identifier: Apache-2.0
#include "doctor/patient_store.h"

#include <cerrno>
#include <memory>

#include "base/text.h"

namespace ckptfs::doctor {
namespace {

// How often a wait checks whether the user wants to stop.
constexpr Milliseconds kLook{50};

}  // namespace

bool Litter::made(const std::string& key) {
    const MutexLock lock(mutex_);
    return keys_.insert(key).second;
}

void Litter::never_made(const std::string& key) {
    const MutexLock lock(mutex_);
    keys_.erase(key);
}

void Litter::made(const UploadId& upload) {
    const MutexLock lock(mutex_);
    uploads_.push_back(upload);
}

void Litter::ended(const UploadId& upload) {
    const MutexLock lock(mutex_);
    std::erase_if(uploads_, [&](const UploadId& each) { return each.key == upload.key && each.id == upload.id; });
}

void Litter::unanswered(const std::string& key) {
    const MutexLock lock(mutex_);
    unanswered_.insert(key);
}

bool Litter::empty() const {
    const MutexLock lock(mutex_);
    return keys_.empty() && uploads_.empty() && unanswered_.empty();
}

std::vector<std::string> Litter::keys() const {
    const MutexLock lock(mutex_);
    return {keys_.begin(), keys_.end()};
}

std::vector<UploadId> Litter::uploads() const {
    const MutexLock lock(mutex_);
    return uploads_;
}

std::vector<std::string> Litter::unanswered() const {
    const MutexLock lock(mutex_);
    return {unanswered_.begin(), unanswered_.end()};
}

bool PatientStore::was_refused(const Error& error) {
    return error.http_status >= 400 && error.http_status < 500 && !error.outcome_unknown;
}

Status PatientStore::until_answered(const std::function<bool(Milliseconds)>& wait_for_answer) const {
    const SteadyTime end = now() + patience_->longest;
    while (!wait_for_answer(kLook)) {
        if (interrupted()) {
            return failure(ECANCELED, "interrupted");
        }
        if (now() >= end) {
            return failure(ETIMEDOUT, format("no answer within {} s", patience_->longest.count() / 1000));
        }
    }
    return {};
}

Result<ObjectInfo> PatientStore::head(const std::string& key) {
    return wait<ObjectInfo>([&](auto done) { store_->head(key, std::move(done)); });
}

Result<ReadBytes> PatientStore::get(const std::string& key, std::optional<ByteRange> range,
                                    const std::string& if_match) {
    const auto bytes = std::make_shared<std::string>();
    GetRequest request;
    request.key = key;
    request.range = range;
    request.if_match = if_match;
    request.on_body = [bytes](ByteSpan more) {
        bytes->append(as_text(more));
        return true;
    };
    auto response = wait<GetResponse>([&](auto done) { store_->get(std::move(request), std::move(done)); });
    if (!response) {
        return failure(std::move(response.error()));
    }
    return ReadBytes{std::move(*response), std::move(*bytes)};
}

Status PatientStore::read(const std::string& key, ByteRange range, std::function<bool(ByteSpan)> on_body) {
    GetRequest request;
    request.key = key;
    request.range = range;
    request.on_body = std::move(on_body);
    const auto response = wait<GetResponse>([&](auto done) { store_->get(std::move(request), std::move(done)); });
    return response ? Status() : failure(response.error());
}

Result<PutResponse> PatientStore::put(PutRequest request) {
    const std::string key = request.key;
    return make(key, [&](auto done) { store_->put(std::move(request), std::move(done)); });
}

Result<PutResponse> PatientStore::copy(CopyRequest request) {
    const std::string key = request.key;
    return make(key, [&](auto done) { store_->copy(std::move(request), std::move(done)); });
}

Result<ListResponse> PatientStore::list(ListRequest request) {
    return wait<ListResponse>([&](auto done) { store_->list(std::move(request), std::move(done)); });
}

Status PatientStore::remove(const std::string& key) {
    return wait<void>([&](auto done) { store_->remove(key, std::move(done)); });
}

Status PatientStore::remove_pinned(RemoveRequest request) {
    return wait<void>([&](auto done) { store_->remove(std::move(request), std::move(done)); });
}

Result<std::vector<DeleteFailure>> PatientStore::remove_many(std::vector<RemoveRequest> requests) {
    return wait<std::vector<DeleteFailure>>(
        [&](auto done) { store_->remove_many(std::move(requests), std::move(done)); });
}

Result<UploadId> PatientStore::create_upload(CreateUploadRequest request) {
    const std::string key = request.key;
    auto upload = wait<UploadId>([&](auto done) { store_->create_upload(std::move(request), std::move(done)); });
    if (upload) {
        litter_->made(*upload);
    } else if (!was_refused(upload.error())) {
        litter_->unanswered(key);
    }
    return upload;
}

Result<UploadedPart> PatientStore::upload_part(UploadPartRequest request) {
    return wait<UploadedPart>([&](auto done) { store_->upload_part(std::move(request), std::move(done)); });
}

Result<UploadedPart> PatientStore::upload_part_copy(UploadPartCopyRequest request) {
    return wait<UploadedPart>([&](auto done) { store_->upload_part_copy(std::move(request), std::move(done)); });
}

Result<PutResponse> PatientStore::complete_upload(CompleteRequest request) {
    const UploadId upload = request.upload;
    auto done = make(upload.key, [&](auto answer) { store_->complete_upload(std::move(request), std::move(answer)); });
    if (done) {
        litter_->ended(upload);
    }
    return done;
}

Status PatientStore::abort_upload(const UploadId& upload) {
    Status done = wait<void>([&](auto answer) { store_->abort_upload(upload, std::move(answer)); });
    if (done) {
        litter_->ended(upload);
    }
    return done;
}

Result<std::vector<OpenUpload>> PatientStore::list_uploads(const std::string& prefix) {
    return wait<std::vector<OpenUpload>>([&](auto done) { store_->list_uploads(prefix, std::move(done)); });
}

Result<std::vector<UploadedPart>> PatientStore::list_parts(const UploadId& upload) {
    return wait<std::vector<UploadedPart>>([&](auto done) { store_->list_parts(upload, std::move(done)); });
}

}  // namespace ckptfs::doctor
