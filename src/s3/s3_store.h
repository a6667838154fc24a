// SPDX-License-Identifier: Apache-2.0
// ObjectStore over the S3 API.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckptfs/config.h"
#include "ckptfs/object_store.h"
#include "s3/endpoint.h"
#include "s3/request_sender.h"
#include "s3/requests.h"

namespace ckptfs::s3 {

class CopyCondition;
class VersionPin;

// Threads and ownership as in ObjectStore. The destructor completes what is under way with ECANCELED; it must not run
// in a callback.
class S3Store final : public ObjectStore {
public:
    S3Store(const StoreConfig& config, Endpoint endpoint, S3Dependencies dependencies);
    ~S3Store() override;

    void head(std::string key, StoreDone<ObjectInfo> done) override;
    void get(GetRequest request, StoreDone<GetResponse> done) override;
    void put(PutRequest request, StoreDone<PutResponse> done) override;
    void copy(CopyRequest request, StoreDone<PutResponse> done) override;
    void list(ListRequest request, StoreDone<ListResponse> done) override;
    void remove(RemoveRequest request, StoreDone<void> done) override;
    void remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) override;

    void create_upload(CreateUploadRequest request, StoreDone<UploadId> done) override;
    void upload_part(UploadPartRequest request, StoreDone<UploadedPart> done) override;
    void upload_part_copy(UploadPartCopyRequest request, StoreDone<UploadedPart> done) override;
    [[nodiscard]] bool lacks_part_copy(const std::string& source_key) const override;
    [[nodiscard]] int slowed_to() const override { return sender_->slowed_to(); }
    void find_part_copy(std::string key, std::function<void()> found) override;
    void complete_upload(CompleteRequest request, StoreDone<PutResponse> done) override;
    void abort_upload(UploadId upload, StoreDone<void> done) override;
    void list_uploads(std::string prefix, StoreDone<std::vector<OpenUpload>> done) override;
    void list_parts(UploadId upload, StoreDone<std::vector<UploadedPart>> done) override;

    // Completes what is under way with ECANCELED and returns when nothing is; later requests end with it at once. Must
    // not be called from a callback.
    void stop() { sender_->stop(); }
    // Endpoint::server.
    [[nodiscard]] const std::string& server() const { return server_; }
    [[nodiscard]] S3Statistics statistics() const { return sender_->statistics(); }

private:
    // Null if any version will do.
    [[nodiscard]] std::shared_ptr<VersionPin> pin(const char* header, const std::string& key,
                                                  const std::string& etag) const;

    const RequestDefaults defaults_;
    const std::string server_;
    const std::shared_ptr<RequestSender> sender_;
    const std::shared_ptr<CopyCondition> copy_condition_;
};

// Region and endpoint from the configuration, the environment and the profile (endpoint.h). The dependencies outlive
// the store.
[[nodiscard]] Result<std::unique_ptr<S3Store>> make_s3_store(const StoreConfig& config, const Environment& environment,
                                                             S3Dependencies dependencies);

}  // namespace ckptfs::s3
