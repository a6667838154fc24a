// SPDX-License-Identifier: Apache-2.0
#include "support/fake_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ckptfs::testing {

namespace {

constexpr int kMaxParts = 10'000;

Failure not_found(const std::string& key) {
    Error error = store_error(ENOENT, "NoSuchKey", 404);
    error.message = key + ": no such key";
    return failure(std::move(error));
}

Failure refused(int errno_value, std::string code, int status) {
    return failure(store_error(errno_value, std::move(code), status));
}

}  // namespace

Error store_error(int errno_value, std::string s3_code, int http_status) {
    Error error;
    error.errno_value = errno_value;
    error.message = "the store answered " + s3_code;
    error.s3_code = std::move(s3_code);
    error.http_status = http_status;
    error.request_id = "FAKE";
    return error;
}

FakeStore::FakeStore(std::uint64_t minimum_part_size) : minimum_part_size_(minimum_part_size) {}

FakeStore::~FakeStore() {
    stop();
}

void FakeStore::stop() {
    std::map<Operation, std::vector<Step>> held;
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
        held.swap(held_);
    }
    steps_changed_.notify_all();
    for (std::thread& thread : threads_) {
        thread.join();
    }
    threads_.clear();
    for (auto& [operation, steps] : held) {
        for (Step& step : steps) {
            step();
        }
    }
}

// --- the way of a call

template <class T>
void FakeStore::perform(Operation operation, const std::string& key, std::function<Result<T>()> take_effect,
                        StoreDone<T> done) {
    run_or_queue(operation, [this, operation, key, take_effect = std::move(take_effect), done = std::move(done)] {
        std::unique_lock lock(mutex_);
        const std::optional<Fault> fault = due_fault(operation, key);
        const bool takes_effect = !fault || fault->after_effect;
        Result<T> effect = takes_effect ? take_effect() : Result<T>(failure(fault->error));
        Result<T> answer = fault ? Result<T>(failure(fault->error)) : std::move(effect);
        if (holding_answers_.contains(operation)) {
            held_[operation].push_back([done, answer = std::move(answer)] { done(answer); });
            held_changed_.notify_all();
            return;
        }
        lock.unlock();
        done(std::move(answer));
    });
}

void FakeStore::run_or_queue(Operation operation, Step step) {
    {
        std::lock_guard lock(mutex_);
        ++calls_[operation];
        if (holding_.contains(operation)) {
            held_[operation].push_back(std::move(step));
            held_changed_.notify_all();
            return;
        }
    }
    dispatch(std::move(step));
}

void FakeStore::dispatch(Step step) {
    {
        std::lock_guard lock(mutex_);
        if (!threads_.empty() && !stopping_) {
            steps_.push_back(std::move(step));
            steps_changed_.notify_one();
            return;
        }
    }
    step();
}

void FakeStore::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        steps_changed_.wait(lock, [this] { return stopping_ || !steps_.empty(); });
        if (steps_.empty()) {
            return;
        }
        Step step = std::move(steps_.front());
        steps_.pop_front();
        lock.unlock();
        step();
        step = nullptr;
        lock.lock();
    }
}

std::optional<Fault> FakeStore::due_fault(Operation operation, const std::string& key) {
    for (Fault& fault : faults_) {
        if (fault.operation != operation || fault.times == 0 || (!fault.key.empty() && fault.key != key)) {
            continue;
        }
        if (fault.skip > 0) {
            --fault.skip;
            continue;
        }
        --fault.times;
        return fault;
    }
    return std::nullopt;
}

// --- operations

Result<const FakeStore::Object*> FakeStore::find(const std::string& key, const std::string& if_match) const {
    const auto found = objects_.find(key);
    if (found == objects_.end()) {
        return not_found(key);
    }
    if (!if_match.empty() && found->second.info.etag != if_match) {
        return refused(ESTALE, "PreconditionFailed", 412);
    }
    return &found->second;
}

std::string FakeStore::next_etag() {
    return "\"etag-" + std::to_string(++serial_) + "\"";
}

void FakeStore::head(std::string key, StoreDone<ObjectInfo> done) {
    perform<ObjectInfo>(
        Operation::kHead, key,
        [this, key]() -> Result<ObjectInfo> {
            return find(key, "").map([this](const Object* object) { return described(object->info); });
        },
        std::move(done));
}

ObjectInfo FakeStore::described(ObjectInfo info) const {
    const WallTime second = std::chrono::floor<std::chrono::seconds>(info.last_modified);
    info.last_modified = describes_to_the_second_ ? second : info.last_modified;
    info.etag = describes_etags_ ? info.etag : "";
    return info;
}

void FakeStore::get(GetRequest request, StoreDone<GetResponse> done) {
    run_or_queue(Operation::kGet, [this, request = std::move(request), done = std::move(done)] {
        std::unique_lock lock(mutex_);
        const std::optional<Fault> fault = due_fault(Operation::kGet, request.key);
        const Result<const Object*> found = find(request.key, request.if_match);
        if ((fault && !fault->after_effect) || !found) {
            lock.unlock();
            done(failure(fault && !fault->after_effect ? fault->error : found.error()));
            return;
        }
        GetResponse response;
        response.object = described((*found)->info);
        response.request_id = "FAKE";
        response.answered_at = now();
        const std::shared_ptr<const std::string> content = (*found)->content;
        const std::size_t piece = body_piece_;
        lock.unlock();

        response.length = content->size();
        if (request.range) {
            const ByteRange range = *request.range;
            if (range.suffix) {
                response.length = std::min<std::uint64_t>(range.length, content->size());
                response.offset = content->size() - response.length;
            } else if (range.offset >= content->size() && !content->empty()) {
                done(refused(EINVAL, "InvalidRange", 416));
                return;
            } else {
                response.offset = std::min<std::uint64_t>(range.offset, content->size());
                response.length = std::min<std::uint64_t>(range.length, content->size() - response.offset);
            }
        }
        // A broken answer delivers half of its bytes.
        const std::uint64_t deliver = fault ? response.length / 2 : response.length;
        for (std::uint64_t sent = 0; sent < deliver;) {
            const std::size_t take = std::min<std::uint64_t>(piece, deliver - sent);
            if (!request.on_body(as_bytes(std::string_view(*content).substr(response.offset + sent, take)))) {
                done(refused(ECANCELED, "", 0));
                return;
            }
            sent += take;
        }
        if (fault) {
            done(failure(fault->error));
            return;
        }
        done(std::move(response));
    });
}

void FakeStore::put(PutRequest request, StoreDone<PutResponse> done) {
    const std::string key = request.key;
    perform<PutResponse>(
        Operation::kPut, key,
        [this, request = std::move(request)]() -> Result<PutResponse> {
            if (request.may_send && !request.may_send()) {
                return failure(EIO, request.key + ": not sent");
            }
            if (request.if_none_match && objects_.contains(request.key)) {
                return refused(EEXIST, "PreconditionFailed", 412);
            }
            if (!request.if_match.empty()) {
                if (const auto found = find(request.key, request.if_match); !found) {
                    return failure(found.error());
                }
            }
            return store_object(request.key, request.body.to_string(), request.metadata, request.content_type,
                                request.content_encoding);
        },
        std::move(done));
}

void FakeStore::copy(CopyRequest request, StoreDone<PutResponse> done) {
    const std::string key = request.key;
    perform<PutResponse>(
        Operation::kCopy, key,
        [this, request = std::move(request)]() -> Result<PutResponse> {
            if (request.may_send && !request.may_send()) {
                return failure(EIO, request.key + ": not sent");
            }
            const Result<const Object*> source = find(request.source_key, request.source_if_match);
            if (!source) {
                return failure(source.error());
            }
            if (request.if_none_match && objects_.contains(request.key)) {
                return refused(EEXIST, "PreconditionFailed", 412);
            }
            const ObjectInfo info = request.description.value_or((*source)->info);
            return store_object(request.key, *(*source)->content, info.metadata, info.content_type,
                                info.content_encoding);
        },
        std::move(done));
}

Result<ListResponse> FakeStore::list_now(const ListRequest& request) const {
    ListResponse response;
    const std::string after = std::max(request.continuation_token, request.start_after);
    std::string last_prefix;
    int entries = 0;
    for (auto at = objects_.lower_bound(request.prefix); at != objects_.end(); ++at) {
        const std::string& key = at->first;
        if (!key.starts_with(request.prefix)) {
            break;
        }
        std::string common;
        if (!request.delimiter.empty()) {
            const std::size_t cut = key.find(request.delimiter, request.prefix.size());
            if (cut != std::string::npos) {
                common = key.substr(0, cut + request.delimiter.size());
            }
        }
        const std::string& name = common.empty() ? key : common;
        if (name <= after || (!common.empty() && common == last_prefix)) {
            continue;
        }
        if (entries == std::min(request.max_keys, page_size_.load())) {
            response.next_continuation_token =
                last_prefix.empty() || (!response.objects.empty() && response.objects.back().key > last_prefix)
                    ? response.objects.back().key
                    : last_prefix;
            break;
        }
        ++entries;
        if (common.empty()) {
            ObjectInfo info = at->second.info;
            info.metadata.clear();
            response.objects.push_back(std::move(info));
        } else {
            response.common_prefixes.push_back(common);
            last_prefix = common;
        }
    }
    return response;
}

void FakeStore::list(ListRequest request, StoreDone<ListResponse> done) {
    const std::string prefix = request.prefix;
    perform<ListResponse>(
        Operation::kList, prefix, [this, request = std::move(request)] { return list_now(request); }, std::move(done));
}

Status FakeStore::remove_now(RemoveRequest request) {
    if (request.may_send && !request.may_send()) {
        return failure(EIO, request.key + ": not sent");
    }
    change_removal_(request);
    const auto found = objects_.find(request.key);
    if (found != objects_.end() && !delete_conditions_ignored_ && !request.if_match.empty() &&
        found->second.info.etag != request.if_match) {
        return refused(ESTALE, "PreconditionFailed", 412);
    }
    objects_.erase(request.key);
    return {};
}

void FakeStore::remove(RemoveRequest request, StoreDone<void> done) {
    perform<void>(
        Operation::kRemove, request.key, [this, request] { return remove_now(request); }, std::move(done));
}

void FakeStore::remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) {
    perform<std::vector<DeleteFailure>>(
        Operation::kRemoveMany, requests.empty() ? "" : requests.front().key,
        [this, requests]() -> Result<std::vector<DeleteFailure>> {
            if (requests.size() > 1000) {
                return refused(EINVAL, "MalformedXML", 400);
            }
            std::vector<DeleteFailure> failures;
            for (const RemoveRequest& request : requests) {
                if (Status removed = remove_now(request); !removed) {
                    failures.push_back({refused_delete_prefix_ + request.key, std::move(removed.error())});
                }
            }
            return failures;
        },
        std::move(done));
}

void FakeStore::create_upload(CreateUploadRequest request, StoreDone<UploadId> done) {
    const std::string key = request.key;
    perform<UploadId>(
        Operation::kCreateUpload, key,
        [this, request = std::move(request)]() -> Result<UploadId> {
            UploadId id{request.key, "upload-" + std::to_string(++serial_)};
            uploads_[id.id] = Upload{request, {}, now()};
            return id;
        },
        std::move(done));
}

void FakeStore::upload_part(UploadPartRequest request, StoreDone<UploadedPart> done) {
    const std::string key = request.upload.key;
    perform<UploadedPart>(
        Operation::kUploadPart, key,
        [this, request = std::move(request)]() -> Result<UploadedPart> {
            const auto upload = uploads_.find(request.upload.id);
            if (upload == uploads_.end()) {
                return refused(EIO, "NoSuchUpload", 404);
            }
            if (request.part_number < 1 || request.part_number > kMaxParts) {
                return refused(EINVAL, "InvalidArgument", 400);
            }
            UploadedPart part{request.part_number, next_etag(), std::to_string(request.crc32c), request.body.size()};
            upload->second.parts[request.part_number] = StoredPart{part, request.body.to_string()};
            return part;
        },
        std::move(done));
}

void FakeStore::upload_part_copy(UploadPartCopyRequest request, StoreDone<UploadedPart> done) {
    const std::string key = request.upload.key;
    perform<UploadedPart>(
        Operation::kUploadPartCopy, key,
        [this, request = std::move(request)]() -> Result<UploadedPart> {
            const auto upload = uploads_.find(request.upload.id);
            if (upload == uploads_.end()) {
                return refused(EIO, "NoSuchUpload", 404);
            }
            const Result<const Object*> source = find(request.source_key, request.source_if_match);
            if (!source) {
                return failure(source.error());
            }
            std::string content = *(*source)->content;
            if (request.range) {
                if (content.size() <= minimum_part_size_ ||
                    request.range->offset + request.range->length > content.size()) {
                    return refused(EINVAL, "InvalidRequest", 400);
                }
                content = content.substr(request.range->offset, request.range->length);
            }
            UploadedPart part{request.part_number, next_etag(), "copied", content.size()};
            upload->second.parts[request.part_number] = StoredPart{part, std::move(content)};
            return part;
        },
        std::move(done));
}

Result<PutResponse> FakeStore::complete_now(const CompleteRequest& request) {
    if (request.may_send && !request.may_send()) {
        return failure(EIO, request.upload.key + ": not sent");
    }
    const auto upload = uploads_.find(request.upload.id);
    if (upload == uploads_.end()) {
        return refused(EIO, "NoSuchUpload", 404);
    }
    if (request.if_none_match && objects_.contains(request.upload.key)) {
        return refused(EEXIST, "PreconditionFailed", 412);
    }
    std::string content;
    int previous = 0;
    for (const UploadedPart& part : request.parts) {
        const auto found = upload->second.parts.find(part.part_number);
        if (part.part_number <= previous) {
            return refused(EIO, "InvalidPartOrder", 400);
        }
        previous = part.part_number;
        if (found == upload->second.parts.end() || found->second.uploaded.etag != part.etag ||
            found->second.uploaded.checksum_crc32c != part.checksum_crc32c) {
            return refused(EIO, "InvalidPart", 400);
        }
        if (&part != &request.parts.back() && found->second.content.size() < minimum_part_size_) {
            return refused(EIO, "EntityTooSmall", 400);
        }
        const bool is_last = &part == &request.parts.back();
        const std::size_t equal_size = upload->second.parts.at(request.parts.front().part_number).content.size();
        const std::size_t size = found->second.content.size();
        if (equal_parts_required_ && (is_last ? size > equal_size : size != equal_size)) {
            return refused(EIO, "InvalidPart", 400);
        }
        content += found->second.content;
    }
    if (request.parts.empty()) {
        return refused(EIO, "MalformedXML", 400);
    }
    const CreateUploadRequest made = upload->second.request;
    uploads_.erase(upload);
    return store_object(made.key, std::move(content), made.metadata, made.content_type, made.content_encoding);
}

void FakeStore::complete_upload(CompleteRequest request, StoreDone<PutResponse> done) {
    const std::string key = request.upload.key;
    perform<PutResponse>(
        Operation::kCompleteUpload, key, [this, request = std::move(request)] { return complete_now(request); },
        std::move(done));
}

void FakeStore::abort_upload(UploadId upload, StoreDone<void> done) {
    perform<void>(
        Operation::kAbortUpload, upload.key,
        [this, upload]() -> Status {
            uploads_.erase(upload.id);
            return {};
        },
        std::move(done));
}

void FakeStore::list_uploads(std::string prefix, StoreDone<std::vector<OpenUpload>> done) {
    perform<std::vector<OpenUpload>>(
        Operation::kListUploads, prefix,
        [this, prefix]() -> Result<std::vector<OpenUpload>> {
            std::vector<OpenUpload> open;
            for (const auto& [id, upload] : uploads_) {
                if (upload.request.key.starts_with(prefix)) {
                    const WallTime initiated = tells_upload_times_ ? upload.initiated : WallTime{};
                    open.push_back(OpenUpload{UploadId{upload.request.key, id}, initiated});
                }
            }
            return open;
        },
        std::move(done));
}

void FakeStore::list_parts(UploadId upload, StoreDone<std::vector<UploadedPart>> done) {
    perform<std::vector<UploadedPart>>(
        Operation::kListParts, upload.key,
        [this, upload]() -> Result<std::vector<UploadedPart>> {
            const auto found = uploads_.find(upload.id);
            if (found == uploads_.end()) {
                return refused(EIO, "NoSuchUpload", 404);
            }
            std::vector<UploadedPart> parts;
            for (const auto& [number, part] : found->second.parts) {
                parts.push_back(part.uploaded);
            }
            return parts;
        },
        std::move(done));
}

}  // namespace ckptfs::testing
