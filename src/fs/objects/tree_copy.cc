// SPDX-License-Identifier: Apache-2.0
#include "fs/objects/tree_copy.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/mutex.h"
#include "base/store_wait.h"
#include "base/thread.h"
#include "ckptfs/log.h"
#include "fs/failures/commit_policy.h"
#include "fs/objects/copy_ranges.h"
#include "fs/objects/marker_objects.h"
#include "fs/objects/object_copy.h"
#include "fs/objects/pinned_removal.h"

namespace ckptfs::fs {

namespace {

// A thousand small files at 30 ms a copy: half a second.
constexpr std::size_t kCopiesAtOnce = 64;
// Each in many parts at once; the round trips before and after the parts are waited for one by one.
constexpr std::size_t kLargeCopiesAtOnce = 8;
constexpr std::size_t kBatchesAtOnce = 4;
constexpr std::size_t kRemovalsAtOnce = 64;
// DeleteObjects takes at most 1,000 keys (Amazon S3 API reference).
constexpr std::size_t kDeleteBatch = 1000;

// The state of one copy_tree().
struct TreeCopy {
    ObjectStore& store;
    const DirectoryMarker& rename;
    const MayGoOn& may_go_on;

    Mutex mutex;
    OwnCopies& own GUARDED_BY(mutex);

    [[nodiscard]] std::string destination(const ObjectInfo& source) const {
        return rename.destination + source.key.substr(rename.source.size());
    }
    [[nodiscard]] bool has_copy(const ObjectInfo& source) {
        const MutexLock lock(mutex);
        return own.made.contains(source.key);
    }
    void note_another(const ObjectInfo& source) {
        const MutexLock lock(mutex);
        own.saved_by_others.insert(source.key);
    }
    [[nodiscard]] Failure saved_by_another(const ObjectInfo& source) const {
        return failure(EBUSY, destination(source) + ": another mount has saved this file");
    }
    void note(const ObjectInfo& source, Copied copied) {
        const MutexLock lock(mutex);
        own.made[source.key] = std::move(copied);
    }
    void note_late(bool may_come_late) {
        const MutexLock lock(mutex);
        own.may_come_late = own.may_come_late || may_come_late;
    }
};

// Whether the version that was listed is gone.
bool is_gone(const Error& error) {
    return error.errno_value == ESTALE || error.errno_value == ENOENT;
}

// `source`: as it was listed; `now`: what its key holds now. If that was replaced since, only ETags and sizes can be
// compared.
bool is_own_copy(const ObjectInfo& there, const ObjectInfo& source, const ObjectInfo& now) {
    return now.etag == source.etag ? is_copy_by_request(there, now)
                                   : there.etag == source.etag && there.size == source.size;
}

// Whether the source is unchanged: then its copy would have its `ckptfs-write`. Some answers give times to the second.
bool is_unchanged(const ObjectInfo& source, const ObjectInfo& now) {
    const auto second = [](const ObjectInfo& object) {
        return std::chrono::floor<std::chrono::seconds>(object.last_modified);
    };
    return now.etag == source.etag && second(now) == second(source);
}

// A copy that was to replace nothing has failed on a condition: on its own, maybe because an earlier attempt made the
// copy and its answer was lost, or on that of its source. What has replaced the source since is copied later.
void settle_taken(TreeCopy& tree, const ObjectInfo& source, const std::function<void(Status)>& done) {
    tree.store.head(tree.destination(source), [&tree, &source, done](Result<ObjectInfo> there) {
        if (!there) {
            done(is_gone(there.error()) ? Status{} : failure(std::move(there.error())));
            return;
        }
        tree.store.head(source.key, [&tree, &source, done, there = std::move(*there)](const Result<ObjectInfo>& now) {
            if (!now && !is_gone(now.error())) {
                done(failure(now.error()));
                return;
            }
            if (!now || !is_own_copy(there, source, *now)) {
                if (now && is_unchanged(source, *now)) {
                    tree.note_another(source);
                }
                done(tree.saved_by_another(source));
                return;
            }
            if (!tree.may_go_on()) {
                // Of a rename that came after this one.
                done(taken_over(tree.rename.source));
                return;
            }
            tree.note(source, {source.etag, ObjectVersion{there.etag, source.size, source.size, there.last_modified}});
            done({});
        });
    });
}

// The answers of stores that apply the condition to the source, or do not know it. An error that may pass, such as
// throttling of the keys, refuses nothing.
bool may_refuse_condition(const Error& error) {
    return !error.retryable && (error.http_status == 304 || error.http_status == 400 || error.http_status == 405);
}

// `replace`: the copy of an earlier version is there. Else, as its directory is hidden, only what another mount has
// saved can be there: one that did not know this, or has ended this rename.
void copy_by_request(TreeCopy& tree, const ObjectInfo& source, bool replace, const std::function<void(Status)>& done) {
    if (!tree.may_go_on()) {
        done(taken_over(tree.rename.source));
        return;
    }
    CopyRequest request;
    request.source_key = source.key;
    request.key = tree.destination(source);
    request.source_if_match = source.etag;
    request.if_none_match = !replace;
    request.may_send = tree.may_go_on;
    tree.store.copy(std::move(request), [&tree, &source, replace, done](Result<PutResponse> response) {
        tree.note_late(response ? response->may_come_again : response.error().outcome_unknown);
        if (response) {
            tree.note(source,
                      {source.etag, ObjectVersion{response->etag, source.size, source.size, response->last_modified}});
            done({});
        } else if (!tree.may_go_on()) {
            done(taken_over(tree.rename.source));
        } else if (!replace && response.error().errno_value == EEXIST) {
            settle_taken(tree, source, done);
        } else if (!replace && may_refuse_condition(response.error())) {
            copy_by_request(tree, source, true, done);
        } else {
            done(is_gone(response.error()) ? Status{} : failure(std::move(response.error())));
        }
    });
}

Status copy_small(TreeCopy& tree, const std::vector<const ObjectInfo*>& sources) {
    return for_each_in_parallel(sources.size(), kCopiesAtOnce,
                                [&](std::size_t index, std::function<void(Status)> done) {
                                    copy_by_request(tree, *sources[index], tree.has_copy(*sources[index]), done);
                                });
}

Status copy_one(TreeCopy& tree, const ObjectInfo& source) {
    if (!tree.may_go_on()) {
        return taken_over(tree.rename.source);
    }
    // As in copy_by_request(). A request that is late would replace what is there, too.
    const CopyOptions options{!tree.has_copy(source), tree.may_go_on, tree.rename.rename_id};
    Result<Copied> copy = copy_object(tree.store, source, tree.destination(source), options);
    tree.note_late(copy ? copy->may_come_again : copy.error().outcome_unknown);
    if (copy) {
        tree.note(source, std::move(*copy));
    } else if (!tree.may_go_on()) {
        return taken_over(tree.rename.source);
    } else if (copy.error().errno_value == EEXIST) {
        // This process's own copy would have been recognised by the `ckptfs-write` that it was given.
        tree.note_another(source);
        return tree.saved_by_another(source);
    }
    return copy || is_gone(copy.error()) ? Status{} : failure(std::move(copy.error()));
}

Status copy_large(TreeCopy& tree, const std::vector<const ObjectInfo*>& sources) {
    Mutex mutex;
    // Guarded by `mutex`.
    std::size_t next = 0;
    Status all;
    const auto copy_some = [&] {
        MutexLock lock(mutex);
        while (all && next < sources.size()) {
            const ObjectInfo& source = *sources[next++];
            lock.unlock();
            Status copied = copy_one(tree, source);
            lock.lock();
            if (all) {
                all = std::move(copied);
            }
        }
    };
    run_on_threads("ckptfs-copy", static_cast<int>(std::min(kLargeCopiesAtOnce, sources.size())), copy_some);
    return all;
}

}  // namespace

Status for_each_page(ObjectStore& store, const std::string& prefix,
                     const std::function<Status(std::vector<ObjectInfo>& objects)>& page) {
    ListRequest request;
    request.prefix = prefix;
    do {
        Result<ListResponse> listed = wait_for<ListResponse>([&](auto done) { store.list(request, done); });
        if (!listed) {
            return failure(std::move(listed.error()));
        }
        if (Status taken = page(listed->objects); !taken) {
            return taken;
        }
        request.continuation_token = std::move(listed->next_continuation_token);
    } while (!request.continuation_token.empty());
    return {};
}

Result<std::vector<ObjectInfo>> list_all(ObjectStore& store, const std::string& prefix, int* pages) {
    std::vector<ObjectInfo> all;
    int taken = 0;
    Status listed = for_each_page(store, prefix, [&all, &taken](std::vector<ObjectInfo>& objects) {
        std::move(objects.begin(), objects.end(), std::back_inserter(all));
        ++taken;
        return Status();
    });
    if (pages != nullptr) {
        *pages = taken;
    }
    return listed ? Result<std::vector<ObjectInfo>>(std::move(all)) : failure(std::move(listed.error()));
}

Status copy_tree(ObjectStore& store, const std::vector<ObjectInfo>& sources, const DirectoryMarker& rename,
                 const MayGoOn& may_go_on, OwnCopies& own, const std::vector<std::string>& last_names) {
    struct BySize {
        std::vector<const ObjectInfo*> small;
        std::vector<const ObjectInfo*> large;
    };
    BySize first;
    BySize last;
    for (const ObjectInfo& source : sources) {
        const bool is_last = std::find(last_names.begin(), last_names.end(), file_name(source.key)) != last_names.end();
        BySize& objects = is_last ? last : first;
        (copy_in_parts(source.size) ? objects.large : objects.small).push_back(&source);
    }
    TreeCopy tree{store, rename, may_go_on, {}, own};
    for (const BySize* const objects : {&first, &last}) {
        Status copied = copy_small(tree, objects->small);
        if (copied && !objects->large.empty()) {
            copied = copy_large(tree, objects->large);
        }
        if (!copied) {
            return copied;
        }
    }
    return {};
}

Status remove_all(ObjectStore& store, const std::vector<RemoveRequest>& requests) {
    const std::size_t batches = (requests.size() + kDeleteBatch - 1) / kDeleteBatch;
    return for_each_in_parallel(batches, kBatchesAtOnce, [&](std::size_t batch, std::function<void(Status)> done) {
        const auto first = requests.begin() + static_cast<std::ptrdiff_t>(batch * kDeleteBatch);
        const auto last =
            requests.begin() + static_cast<std::ptrdiff_t>(std::min(requests.size(), (batch + 1) * kDeleteBatch));
        store.remove_many({first, last}, [done](Result<std::vector<DeleteFailure>> failures) {
            if (!failures) {
                done(failure(std::move(failures.error())));
                return;
            }
            const auto failed = std::find_if(failures->begin(), failures->end(), [](const DeleteFailure& each) {
                return each.error.errno_value != ESTALE;
            });
            done(failed == failures->end() ? Status{} : failure(std::move(failed->error)));
        });
    });
}

Status remove_all(ObjectStore& store, std::vector<RemoveRequest> requests, const MayGoOn& may_go_on) {
    for (RemoveRequest& request : requests) {
        request.may_send = may_go_on;
    }
    return remove_all(store, requests);
}

Status remove_versions(ObjectStore& store, std::vector<RemoveRequest> versions, const RemovalTerms& terms) {
    if (terms.pins != DeletePins::kUnknown) {
        for (RemoveRequest& version : versions) {
            version.if_match = terms.pins == DeletePins::kHonoured ? std::move(version.if_match) : "";
        }
        return remove_all(store, std::move(versions), terms.may_go_on);
    }
    // Not of bool, as neighbours are written at once.
    std::vector<char> refused(versions.size(), 0);
    const auto remove = [&](std::size_t index, const std::function<void(Status)>& done) {
        RemoveRequest& version = versions[index];
        version.may_send = terms.may_go_on;
        store.remove(version, [&is_refused = refused[index], done](Status removed) {
            is_refused = !removed && removed.error().errno_value == ESTALE ? 1 : 0;
            done(is_refused != 0 ? Status() : std::move(removed));
        });
    };
    Status removed = for_each_in_parallel(versions.size(), kRemovalsAtOnce, remove);
    for (std::size_t index = 0; removed && index < versions.size(); ++index) {
        // Another version is there, or the store gives the ETag of this one in listings alone.
        removed = refused[index] != 0 ? remove_version(store, versions[index]) : std::move(removed);
    }
    return removed;
}

}  // namespace ckptfs::fs
