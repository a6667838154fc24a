// SPDX-License-Identifier: Apache-2.0
#include "disk/recording_store.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <unordered_set>

namespace ckptfs {
namespace {

// What an upload's object will be described with is not known where more are open.
constexpr std::size_t kMostUploads = 10'000;

// Listings that are under way; where one ends that has more pages than these, its gaps are not looked at.
constexpr std::size_t kMostPages = 1024;

std::string last_name(const ListResponse& page) {
    const std::string key = page.objects.empty() ? "" : page.objects.back().key;
    return page.common_prefixes.empty() ? key : std::max(key, page.common_prefixes.back());
}

// Of what goes through `request`, as long as it may be all of a small object.
std::shared_ptr<std::string> keep_bytes(GetRequest& request) {
    auto kept = std::make_shared<std::string>();
    request.on_body = [kept, next = std::move(request.on_body)](ByteSpan bytes) {
        if (kept->size() <= kLargestRecorded) {
            kept->append(as_text(bytes));
        }
        return next == nullptr || next(bytes);
    };
    return kept;
}

}  // namespace

void RecentChanges::note(const std::string& key) {
    const MutexLock lock(mutex_);
    ++last_;
    if (changed_.size() >= kMost && !changed_.contains(key)) {
        changed_.clear();
        forgotten_until_ = last_;
    }
    changed_[key] = last_;
}

bool RecentChanges::has_changed(const std::string& key, std::uint64_t since) const {
    const MutexLock lock(mutex_);
    const auto found = changed_.find(key);
    return since < forgotten_until_ || (found != changed_.end() && found->second > since);
}

void RecordingStore::record(ObjectInfo object, std::optional<std::string> body, std::uint64_t since) {
    if (!changes_.has_changed(object.key, since)) {
        recorder_.there({std::move(object), true, std::move(body)});
    }
}

void RecordingStore::record_missing(const std::string& key, const Error& why, std::uint64_t since) {
    if (why.errno_value == ENOENT && !changes_.has_changed(key, since)) {
        recorder_.gone(key);
    }
}

void RecordingStore::head(std::string key, StoreDone<ObjectInfo> done) {
    if (is_hidden(key)) {
        behind().head(std::move(key), std::move(done));
        return;
    }
    behind().head(key, [this, key, since = changes_.now(), done = std::move(done)](Result<ObjectInfo> object) {
        if (object) {
            ObjectInfo seen = *object;
            seen.key = key;
            record(std::move(seen), std::nullopt, since);
        } else {
            record_missing(key, object.error(), since);
        }
        done(std::move(object));
    });
}

void RecordingStore::get(GetRequest request, StoreDone<GetResponse> done) {
    if (is_hidden(request.key) || (!request.for_open && !request.is_small)) {
        behind().get(std::move(request), std::move(done));
        return;
    }
    const std::string key = request.key;
    const std::shared_ptr<std::string> bytes = keep_bytes(request);
    behind().get(std::move(request),
                 [this, key, bytes, since = changes_.now(), done = std::move(done)](Result<GetResponse> got) {
                     if (got) {
                         ObjectInfo seen = got->object;
                         seen.key = key;
                         const bool is_whole = got->offset == 0 && bytes->size() == seen.size;
                         record(std::move(seen), is_whole ? std::optional(std::move(*bytes)) : std::nullopt, since);
                     } else {
                         record_missing(key, got.error(), since);
                     }
                     done(std::move(got));
                 });
}

void RecordingStore::put(PutRequest request, StoreDone<PutResponse> done) {
    if (is_hidden(request.key)) {
        behind().put(std::move(request), std::move(done));
        return;
    }
    SeenObject made;
    made.info.key = request.key;
    made.info.size = request.body.size();
    made.info.metadata = request.metadata;
    made.info.content_type = request.content_type;
    made.info.content_encoding = request.content_encoding;
    if (made.info.size <= kLargestRecorded) {
        // Its memory is the pool's.
        made.body = request.body.to_string();
    }
    changes_.note(request.key);
    behind().put(std::move(request),
                 [this, made = std::move(made), done = std::move(done)](Result<PutResponse> written) mutable {
                     changes_.note(made.info.key);
                     if (written) {
                         made.info.etag = written->etag;
                         made.info.last_modified = written->last_modified;
                         recorder_.there(std::move(made));
                     }
                     done(std::move(written));
                 });
}

void RecordingStore::copy(CopyRequest request, StoreDone<PutResponse> done) {
    if (is_hidden(request.key)) {
        behind().copy(std::move(request), std::move(done));
        return;
    }
    CopyRequest copied = request;
    copied.may_send = nullptr;
    changes_.note(request.key);
    behind().copy(std::move(request),
                  [this, copied = std::move(copied), done = std::move(done)](Result<PutResponse> written) mutable {
                      changes_.note(copied.key);
                      if (written) {
                          recorder_.copied(std::move(copied), *written);
                      }
                      done(std::move(written));
                  });
}

void RecordingStore::list(ListRequest request, StoreDone<ListResponse> done) {
    if (is_hidden(request.prefix)) {
        behind().list(std::move(request), std::move(done));
        return;
    }
    ListRequest asked = request;
    behind().list(std::move(request), [this, asked = std::move(asked), since = changes_.now(),
                                       done = std::move(done)](Result<ListResponse> page) {
        if (page) {
            record_page(asked, *page, since);
        }
        done(std::move(page));
    });
}

// Where anything was changed meanwhile it cannot be told what a name that is not on the page stands for.
void RecordingStore::record_page(ListRequest request, ListResponse page, std::uint64_t since) {
    {
        const MutexLock lock(mutex_);
        if (const auto end = page_ends_.find(request.continuation_token); end != page_ends_.end()) {
            request.start_after = end->second;
            request.continuation_token.clear();
        }
        if (page_ends_.size() >= kMostPages) {
            page_ends_.clear();
        }
        if (!page.next_continuation_token.empty()) {
            page_ends_[page.next_continuation_token] = last_name(page);
        }
    }
    std::erase_if(page.objects, [this](const ObjectInfo& object) { return is_hidden(object.key); });
    if (changes_.now() == since) {
        recorder_.listed(std::move(request), std::move(page));
    }
}

void RecordingStore::remove(RemoveRequest request, StoreDone<void> done) {
    if (is_hidden(request.key)) {
        behind().remove(std::move(request), std::move(done));
        return;
    }
    const std::string key = request.key;
    changes_.note(key);
    behind().remove(std::move(request), [this, key, done = std::move(done)](Status removed) {
        changes_.note(key);
        if (removed) {
            recorder_.gone(key);
        }
        done(std::move(removed));
    });
}

void RecordingStore::remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) {
    std::vector<std::string> keys;
    for (const RemoveRequest& request : requests) {
        if (!is_hidden(request.key)) {
            keys.push_back(request.key);
            changes_.note(request.key);
        }
    }
    behind().remove_many(std::move(requests), [this, keys = std::move(keys),
                                               done = std::move(done)](Result<std::vector<DeleteFailure>> failures) {
        std::unordered_set<std::string> left;
        for (const DeleteFailure& each : failures ? *failures : std::vector<DeleteFailure>()) {
            left.insert(each.key);
        }
        for (const std::string& key : keys) {
            changes_.note(key);
            if (failures && !left.contains(key)) {
                recorder_.gone(key);
            }
        }
        done(std::move(failures));
    });
}

void RecordingStore::create_upload(CreateUploadRequest request, StoreDone<UploadId> done) {
    if (is_hidden(request.key)) {
        behind().create_upload(std::move(request), std::move(done));
        return;
    }
    ObjectInfo described;
    described.key = request.key;
    described.metadata = request.metadata;
    described.content_type = request.content_type;
    described.content_encoding = request.content_encoding;
    described.storage_class = request.storage_class;
    described.other_headers = request.other_headers;
    behind().create_upload(std::move(request), [this, described = std::move(described),
                                                done = std::move(done)](Result<UploadId> upload) mutable {
        if (upload) {
            const MutexLock lock(mutex_);
            if (uploads_.size() < kMostUploads) {
                uploads_.emplace(upload->id, std::move(described));
            }
        }
        done(std::move(upload));
    });
}

std::optional<ObjectInfo> RecordingStore::take_upload(const std::string& id) {
    const MutexLock lock(mutex_);
    auto found = uploads_.extract(id);
    return found.empty() ? std::nullopt : std::optional(std::move(found.mapped()));
}

void RecordingStore::complete_upload(CompleteRequest request, StoreDone<PutResponse> done) {
    if (is_hidden(request.upload.key)) {
        behind().complete_upload(std::move(request), std::move(done));
        return;
    }
    changes_.note(request.upload.key);
    behind().complete_upload(std::move(request), [this, upload = request.upload, size = request.size,
                                                  done = std::move(done)](Result<PutResponse> written) {
        changes_.note(upload.key);
        std::optional<ObjectInfo> described = written ? take_upload(upload.id) : std::nullopt;
        if (described) {
            described->size = size;
            described->etag = written->etag;
            described->last_modified = written->last_modified;
            recorder_.there({std::move(*described)});
        } else if (written) {
            recorder_.gone(upload.key);
        }
        done(std::move(written));
    });
}

void RecordingStore::abort_upload(UploadId upload, StoreDone<void> done) {
    static_cast<void>(take_upload(upload.id));
    behind().abort_upload(std::move(upload), std::move(done));
}

}  // namespace ckptfs
