// SPDX-License-Identifier: Apache-2.0
// Finds out whether the store honours x-amz-copy-source-if-match of UploadPartCopy. Ceph's gateway, for one, copies
// whatever is there: the parts of one upload would come from several versions.
//
// This is found out once for a store, with the first part that is copied: the part is requested with an ETag that no
// object has. If that succeeds, VersionPin checks the version with HEAD from then on, and the log says so once. The
// whole part is requested under its own number, because Ceph's gateway completes no upload that has a part that is not
// named, and because a request that arrives late then writes the same bytes again; if the source was replaced, the
// part's ETag shows it.
//
// Ownership: shared; its callbacks keep it alive. Threads: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/object_store.h"
#include "s3/request_sender.h"

namespace ckptfs::s3 {

class CopyCondition : public std::enable_shared_from_this<CopyCondition> {
public:
    CopyCondition(std::shared_ptr<RequestSender> sender, RequestDefaults defaults)
        : sender_(std::move(sender)), defaults_(std::move(defaults)) {}

    // Calls `found` once it is known, before `request` is sent; at once if it is known already. A failure: the store
    // could not be asked, and nothing may be copied.
    void find_out(UploadPartCopyRequest request, std::function<void(Status)> found);

private:
    enum class Known : std::uint8_t { kNo, kAsking, kYes };
    struct Waiting {
        UploadPartCopyRequest request;
        std::function<void(Status)> found;
    };

    void ask(Waiting first);
    void answered(const Result<HttpResponse>& outcome, const std::function<void(Status)>& found);
    void learn_that_it_is_ignored() const;

    const std::shared_ptr<RequestSender> sender_;
    const RequestDefaults defaults_;

    Mutex mutex_;
    Known known_ GUARDED_BY(mutex_) = Known::kNo;
    bool is_ignored_ GUARDED_BY(mutex_) = false;
    std::vector<Waiting> waiting_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::s3
