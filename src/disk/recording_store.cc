// SPDX-License-Identifier: Apache-2.0
#include "disk/recording_store.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <unordered_set>

#include "base/text.h"

namespace ckptfs {
namespace {

// Uploads whose descriptions are known. If more are open, an object's description is not known when it is completed.
constexpr std::size_t kMostUploads = 10'000;

// Listings under way of which the end of the last page is known. For more of them, names that are gone between two
// pages are not noticed.
constexpr std::size_t kMostPages = 1024;

std::string last_name(const ListResponse& page) {
    const std::string key = page.objects.empty() ? "" : page.objects.back().key;
    return page.common_prefixes.empty() ? key : std::max(key, page.common_prefixes.back());
}

// Keeps what goes through `request`, as long as it may be all of a small object.
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
    changed_[key] = ++last_;
    order_.emplace_back(last_, key);
    while (order_.size() > kMost) {
        const auto& [number, oldest] = order_.front();
        forgotten_until_ = number;
        if (const auto found = changed_.find(oldest); found->second == number) {
            changed_.erase(found);
        }
        order_.pop_front();
    }
}

bool RecentChanges::has_changed(const std::string& key, std::uint64_t since) const {
    const auto found = changed_.find(key);
    return since < forgotten_until_ || (found != changed_.end() && found->second > since);
}

std::optional<std::set<std::string>> RecentChanges::changed_since(std::uint64_t since) const {
    if (since < forgotten_until_) {
        return std::nullopt;
    }
    std::set<std::string> changed;
    for (auto each = order_.rbegin(); each != order_.rend() && each->first > since; ++each) {
        changed.insert(each->second);
    }
    return changed;
}

RecordingStore::Asked RecordingStore::begin_answer() {
    const MutexLock lock(mutex_);
    return {changes_.now(), recorder_.now()};
}

void RecordingStore::begin_change(const std::string& key) {
    const MutexLock lock(mutex_);
    changes_.note(key);
}

void RecordingStore::change_ended(const std::string& key, const std::function<void()>& made) {
    const MutexLock lock(mutex_);
    changes_.note(key);
    if (made != nullptr) {
        made();
    }
}

void RecordingStore::record(ObjectInfo object, std::optional<std::string> body, const Asked& asked) {
    const MutexLock lock(mutex_);
    if (!changes_.has_changed(object.key, asked.since)) {
        changes_.note(object.key);
        recorder_.there({std::move(object), true, std::move(body)}, {asked.at, false});
    }
}

void RecordingStore::record_missing(const std::string& key, const Error& why, const Asked& asked) {
    const MutexLock lock(mutex_);
    if (why.errno_value == ENOENT && !changes_.has_changed(key, asked.since)) {
        changes_.note(key);
        recorder_.gone(key, {asked.at, false});
    }
}

void RecordingStore::head(std::string key, StoreDone<ObjectInfo> done) {
    if (is_hidden(key)) {
        behind().head(std::move(key), std::move(done));
        return;
    }
    behind().head(key, [this, key, asked = begin_answer(), done = std::move(done)](Result<ObjectInfo> object) {
        if (object) {
            ObjectInfo seen = *object;
            seen.key = key;
            record(std::move(seen), std::nullopt, asked);
        } else {
            record_missing(key, object.error(), asked);
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
                 [this, key, bytes, asked = begin_answer(), done = std::move(done)](Result<GetResponse> got) {
                     if (got) {
                         ObjectInfo seen = got->object;
                         seen.key = key;
                         const bool is_whole = got->offset == 0 && bytes->size() == seen.size;
                         record(std::move(seen), is_whole ? std::optional(std::move(*bytes)) : std::nullopt, asked);
                     } else {
                         record_missing(key, got.error(), asked);
                     }
                     done(std::move(got));
                 });
}

void RecordingStore::put(PutRequest request, StoreDone<PutResponse> done) {
    if (is_hidden(request.key)) {
        behind().put(std::move(request), std::move(done));
        return;
    }
    // Shared: the callback may be copied on its way, without need for a copy of the bytes.
    const auto made = std::make_shared<SeenObject>();
    made->info.key = request.key;
    made->info.size = request.body.size();
    made->info.metadata = request.metadata;
    made->info.content_type = request.content_type;
    made->info.content_encoding = request.content_encoding;
    if (made->info.size <= kLargestRecorded) {
        // Copied, as the memory of the body is the pool's.
        made->body = request.body.to_string();
    }
    begin_change(request.key);
    behind().put(std::move(request), [this, made, done = std::move(done)](Result<PutResponse> written) {
        const std::string key = made->info.key;
        change_ended(
            key, !written ? std::function<void()>() : [&] {
                made->info.etag = written->etag;
                made->info.last_modified = written->last_modified;
                recorder_.there(std::move(*made), of_change());
            });
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
    begin_change(request.key);
    behind().copy(std::move(request),
                  [this, copied = std::move(copied), done = std::move(done)](Result<PutResponse> written) mutable {
                      const std::string key = copied.key;
                      change_ended(
                          key, !written ? std::function<void()>()
                                        : [&] { recorder_.copied(std::move(copied), *written, recorder_.now()); });
                      done(std::move(written));
                  });
}

void RecordingStore::list(ListRequest request, StoreDone<ListResponse> done) {
    if (is_hidden(request.prefix)) {
        behind().list(std::move(request), std::move(done));
        return;
    }
    ListRequest sent = request;
    behind().list(std::move(request), [this, sent = std::move(sent), asked = begin_answer(),
                                       done = std::move(done)](Result<ListResponse> page) {
        if (page) {
            record_page(sent, *page, asked);
        }
        done(std::move(page));
    });
}

void RecordingStore::record_page(ListRequest request, ListResponse page, const Asked& asked) {
    const MutexLock lock(mutex_);
    find_begin(request, page);
    std::erase_if(page.objects, [this](const ObjectInfo& object) { return is_hidden(object.key); });
    if (std::optional<std::set<std::string>> newer = changes_.changed_since(asked.since)) {
        recorder_.listed(std::move(request), std::move(page), std::move(*newer), asked.at);
    }
}

// Finds out where the page begins: a token does not say where the page before has ended.
void RecordingStore::find_begin(ListRequest& request, const ListResponse& page) {
    const auto name_of = [&request](const std::string& token) {
        return format("{}\n{}\n{}", request.delimiter, token, request.prefix);
    };
    const std::string asked = name_of(request.continuation_token);
    if (auto end = page_ends_.extract(asked); !request.continuation_token.empty() && !end.empty()) {
        request.start_after = std::move(end.mapped());
        request.continuation_token.clear();
    }
    if (page.next_continuation_token.empty()) {
        return;
    }
    if (page_ends_.size() >= kMostPages) {
        page_ends_.clear();
    }
    const std::string last = last_name(page);
    // The end of an empty page is known only together with that of the page before.
    if (request.continuation_token.empty() || !last.empty()) {
        page_ends_[name_of(page.next_continuation_token)] = std::max(last, request.start_after);
    }
}

void RecordingStore::remove(RemoveRequest request, StoreDone<void> done) {
    if (is_hidden(request.key)) {
        behind().remove(std::move(request), std::move(done));
        return;
    }
    const std::string key = request.key;
    begin_change(key);
    behind().remove(std::move(request), [this, key, done = std::move(done)](Status removed) {
        change_ended(
            key, !removed ? std::function<void()>() : [&] { recorder_.gone(key, of_change()); });
        done(std::move(removed));
    });
}

void RecordingStore::remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) {
    std::vector<std::string> keys;
    for (const RemoveRequest& request : requests) {
        if (!is_hidden(request.key)) {
            keys.push_back(request.key);
            begin_change(request.key);
        }
    }
    behind().remove_many(std::move(requests), [this, keys = std::move(keys),
                                               done = std::move(done)](Result<std::vector<DeleteFailure>> failures) {
        std::unordered_set<std::string> left;
        for (const DeleteFailure& each : failures ? *failures : std::vector<DeleteFailure>()) {
            left.insert(each.key);
        }
        for (const std::string& key : keys) {
            const bool is_gone = failures && !left.contains(key);
            change_ended(
                key, !is_gone ? std::function<void()>() : [&] { recorder_.gone(key, of_change()); });
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
    const UploadId upload = request.upload;
    const std::uint64_t size = request.size;
    begin_change(upload.key);
    behind().complete_upload(std::move(request),
                             [this, upload, size, done = std::move(done)](Result<PutResponse> written) {
                                 std::optional<ObjectInfo> described = written ? take_upload(upload.id) : std::nullopt;
                                 change_ended(
                                     upload.key, !written ? std::function<void()>() : [&] {
                                         if (!described) {
                                             recorder_.gone(upload.key, of_change());
                                             return;
                                         }
                                         described->size = size;
                                         described->etag = written->etag;
                                         described->last_modified = written->last_modified;
                                         recorder_.there({std::move(*described)}, of_change());
                                     });
                                 done(std::move(written));
                             });
}

void RecordingStore::abort_upload(UploadId upload, StoreDone<void> done) {
    static_cast<void>(take_upload(upload.id));
    behind().abort_upload(std::move(upload), std::move(done));
}

}  // namespace ckptfs
