// SPDX-License-Identifier: Apache-2.0
#include "fs/tree_copy.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "ckptfs/log.h"
#include "fs/copy_plan.h"
#include "fs/object_copy.h"
#include "fs/store_wait.h"

namespace ckptfs {

namespace {

// A thousand small files at 30 ms a copy: half a second.
constexpr std::size_t kCopiesAtOnce = 64;
constexpr std::size_t kBatchesAtOnce = 4;
// DeleteObjects takes at most 1,000 keys (Amazon S3 API reference).
constexpr std::size_t kDeleteBatch = 1000;

Status copy_small(ObjectStore& store, const std::vector<const ObjectInfo*>& sources, std::size_t old_prefix_size,
                  const std::string& new_prefix, std::map<std::string, ObjectVersion>& copied) {
    std::mutex mutex;
    return for_each_in_parallel(
        sources.size(), kCopiesAtOnce, [&](std::size_t index, std::function<void(Status)> done) {
            const ObjectInfo& source = *sources[index];
            CopyRequest request;
            request.source_key = source.key;
            request.key = new_prefix + source.key.substr(old_prefix_size);
            request.source_if_match = source.etag;
            store.copy(std::move(request), [&mutex, &copied, &source, done](Result<PutResponse> response) {
                if (!response) {
                    done(failure(std::move(response.error())));
                    return;
                }
                {
                    std::lock_guard lock(mutex);
                    copied[source.key] =
                        ObjectVersion{response->etag, source.size, source.size, response->last_modified};
                }
                done({});
            });
        });
}

}  // namespace

Result<std::vector<ObjectInfo>> list_all(ObjectStore& store, const std::string& prefix) {
    std::vector<ObjectInfo> all;
    ListRequest request;
    request.prefix = prefix;
    do {
        Result<ListResponse> page = wait_for<ListResponse>([&](auto done) { store.list(request, done); });
        if (!page) {
            return failure(std::move(page.error()));
        }
        std::move(page->objects.begin(), page->objects.end(), std::back_inserter(all));
        request.continuation_token = page->next_continuation_token;
    } while (!request.continuation_token.empty());
    return all;
}

Result<std::map<std::string, ObjectVersion>> copy_tree(ObjectStore& store, const std::vector<ObjectInfo>& sources,
                                                       const std::string& old_prefix, const std::string& new_prefix) {
    std::map<std::string, ObjectVersion> copied;
    std::vector<const ObjectInfo*> small;
    std::vector<const ObjectInfo*> large;
    for (const ObjectInfo& source : sources) {
        (copy_in_parts(source.size) ? large : small).push_back(&source);
    }
    Status status = copy_small(store, small, old_prefix.size(), new_prefix, copied);
    for (std::size_t i = 0; status && i < large.size(); ++i) {
        const ObjectInfo& source = *large[i];
        const Result<ObjectVersion> copy =
            copy_object(store, source.key, new_prefix + source.key.substr(old_prefix.size()), CopyOptions{});
        if (copy) {
            copied[source.key] = *copy;
        } else {
            status = failure(copy.error());
        }
    }
    if (status) {
        return copied;
    }
    std::vector<std::string> made;
    for (const auto& [key, version] : copied) {
        made.push_back(new_prefix + key.substr(old_prefix.size()));
    }
    if (const Status removed = remove_all(store, made); !removed) {
        log_warning(escaped("copies of a failed rename remain below " + new_prefix + ": " + removed.error().message));
    }
    return failure(status.error());
}

Status remove_all(ObjectStore& store, const std::vector<std::string>& keys) {
    const std::size_t batches = (keys.size() + kDeleteBatch - 1) / kDeleteBatch;
    return for_each_in_parallel(batches, kBatchesAtOnce, [&](std::size_t batch, std::function<void(Status)> done) {
        const auto first = keys.begin() + static_cast<std::ptrdiff_t>(batch * kDeleteBatch);
        const auto last = keys.begin() + static_cast<std::ptrdiff_t>(std::min(keys.size(), (batch + 1) * kDeleteBatch));
        store.remove_many({first, last}, [done](Result<std::vector<DeleteFailure>> failures) {
            if (!failures) {
                done(failure(std::move(failures.error())));
            } else if (!failures->empty()) {
                done(failure(failures->front().error));
            } else {
                done({});
            }
        });
    });
}

}  // namespace ckptfs
