// SPDX-License-Identifier: Apache-2.0
// The object store as the probes of `ckptfs doctor` use it: every wait ends, also when the user interrupts it, and
// everything that is made is remembered until it is gone.
//
// Ownership: what a request needs is held by the request, so that one that is given up may end later.
// Threads: blocks; all functions may be called from any thread.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/store_wait.h"
#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs::doctor {

// Keys and uploads that the probes may have made.
class Litter {
public:
    // Remembers the key; false if it was known already.
    bool made(const std::string& key);
    void never_made(const std::string& key);
    void made(const UploadId& upload);
    void ended(const UploadId& upload);
    // Remembers that an upload of this key may be open whose ID never arrived.
    void unanswered(const std::string& key);
    [[nodiscard]] bool empty() const;
    [[nodiscard]] std::vector<std::string> keys() const;
    [[nodiscard]] std::vector<UploadId> uploads() const;
    [[nodiscard]] std::vector<std::string> unanswered() const;

private:
    mutable Mutex mutex_;
    std::set<std::string> keys_ GUARDED_BY(mutex_);
    std::vector<UploadId> uploads_ GUARDED_BY(mutex_);
    std::set<std::string> unanswered_ GUARDED_BY(mutex_);
};

struct Patience {
    const Clock& clock;
    // True once the user wants to stop: every wait then ends with ECANCELED.
    std::function<bool()> interrupted;
    // The longest wait for one request, which then fails with ETIMEDOUT.
    Milliseconds longest;
};

struct ReadBytes {
    GetResponse response;
    std::string bytes;
};

class PatientStore {
public:
    // The arguments outlive it.
    PatientStore(ObjectStore& store, const Patience& patience, Litter& litter)
        : store_(&store), patience_(&patience), litter_(&litter) {}

    [[nodiscard]] bool interrupted() const { return patience_->interrupted(); }
    [[nodiscard]] SteadyTime now() const { return patience_->clock.now(); }

    Result<ObjectInfo> head(const std::string& key);
    Result<ReadBytes> get(const std::string& key, std::optional<ByteRange> range, const std::string& if_match);
    // `on_body` as in GetRequest; it may be called until the store has stopped, also after the wait has ended.
    Status read(const std::string& key, ByteRange range, std::function<bool(ByteSpan)> on_body);
    Result<PutResponse> put(PutRequest request);
    Result<PutResponse> copy(CopyRequest request);
    Result<ListResponse> list(ListRequest request);
    Status remove(const std::string& key);
    Status remove_pinned(RemoveRequest request);
    Result<std::vector<DeleteFailure>> remove_many(std::vector<RemoveRequest> requests);
    Result<UploadId> create_upload(CreateUploadRequest request);
    Result<UploadedPart> upload_part(UploadPartRequest request);
    Result<UploadedPart> upload_part_copy(UploadPartCopyRequest request);
    Result<PutResponse> complete_upload(CompleteRequest request);
    Status abort_upload(const UploadId& upload);
    Result<std::vector<OpenUpload>> list_uploads(const std::string& prefix);
    Result<std::vector<UploadedPart>> list_parts(const UploadId& upload);

    // Starts a request, and waits for its reply.
    template <class T, class Start>
    Result<T> wait(Start start) {
        std::future<Result<T>> answer = ask<T>(std::move(start));
        return until_answered([&](Milliseconds time) { return answer.wait_for(time) == std::future_status::ready; })
            .and_then([&] { return answer.get(); });
    }

private:
    // Sends a request that makes an object of this key, which is litter unless the store has surely not made it.
    template <class Start>
    Result<PutResponse> make(const std::string& key, Start start) {
        const bool is_new = litter_->made(key);
        auto result = wait<PutResponse>(std::move(start));
        if (is_new && !result && was_refused(result.error())) {
            litter_->never_made(key);
        }
        return result;
    }
    static bool was_refused(const Error& error);
    Status until_answered(const std::function<bool(Milliseconds)>& wait_for_answer) const;

    ObjectStore* store_;
    const Patience* patience_;
    Litter* litter_;
};

}  // namespace ckptfs::doctor
