// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cerrno>
#include <utility>

#include "base/mutex.h"
#include "base/uuid.h"
#include "writeback/store_rules.h"
#include "writeback/writeback_store.h"

namespace ckptfs {
namespace {

// Unlike any ETag that a store gives, and different for each version.
std::string new_etag() {
    return "\"" + random_uuid() + "\"";
}

}  // namespace

void WritebackStore::check(Conditions conditions, StoreDone<void> done) {
    if (!conditions.if_none_match && conditions.if_match.empty()) {
        done({});
        return;
    }
    const auto decide = [conditions](bool is_there, const std::string& etag) -> Status {
        if (conditions.if_none_match && is_there) {
            return exists_already(conditions.key);
        }
        if (!conditions.if_match.empty() && !is_there) {
            return no_such_key(conditions.key);
        }
        return conditions.if_match.empty() || conditions.if_match == etag ? Status() : another_version(conditions.key);
    };
    head(conditions.key, [decide, done = std::move(done)](const Result<ObjectInfo>& object) {
        if (!object && object.error().errno_value != ENOENT) {
            done(failure(object.error()));
            return;
        }
        done(decide(object.has_value(), object ? object->etag : ""));
    });
}

void WritebackStore::acknowledge(UnsentChange change, Body body, std::function<bool()> may,
                                 UnsentChanges::Announced announced, StoreDone<PutResponse> done) {
    change.object.last_modified = environment_.clock.wall_now();
    if (change.object.etag.empty()) {
        change.object.etag = new_etag();
    }
    const PutResponse response{change.object.etag, change.object.last_modified};
    unsent_->acknowledge(std::move(change), std::move(body), std::move(may), std::move(announced),
                         [response, done = std::move(done)](const Status& written) {
                             done(written ? Result<PutResponse>(response) : failure(written.error()));
                         });
}

Result<Body> WritebackStore::write_body(const PutRequest& request) {
    Body body;
    if (request.body.empty()) {
        return body;
    }
    if (request.body.size() <= kMostInline) {
        BodyPiece piece;
        piece.bytes = request.body.to_string();
        piece.size = piece.bytes.size();
        body.pieces.push_back(std::move(piece));
        return body;
    }
    takes_bytes();
    Result<std::shared_ptr<BodyFile>> file = unsent_->new_file();
    if (!file) {
        return failure(std::move(file.error()));
    }
    Result<BodyPiece> piece = unsent_->write(**file, request.body);
    if (!piece) {
        return failure(std::move(piece.error()));
    }
    if (request.crc32c && checksum_of(*piece) != *request.crc32c) {
        return damage(request.key + " has changed in memory: the memory of this machine may be failing");
    }
    if (Status synced = (*file)->sync(); !synced) {
        return failure(std::move(synced.error()));
    }
    body.pieces.push_back(std::move(*piece));
    body.files.push_back(std::move(*file));
    return body;
}

void WritebackStore::put(PutRequest request, StoreDone<PutResponse> done) {
    if (is_direct(request.key)) {
        environment_.store.put(std::move(request), std::move(done));
        return;
    }
    done = counted(std::move(done));
    Conditions conditions{request.key, request.if_none_match, request.if_match};
    check(std::move(conditions), [this, request = std::move(request), done = std::move(done)](const Status& hold) {
        if (!hold) {
            done(failure(hold.error()));
            return;
        }
        environment_.disk.post([this, request, done] {
            Result<Body> body = write_body(request);
            if (!body) {
                done(failure(std::move(body.error())));
                return;
            }
            UnsentChange change;
            change.object.key = request.key;
            change.object.size = request.body.size();
            change.object.metadata = request.metadata;
            change.object.content_type = request.content_type;
            change.object.content_encoding = request.content_encoding;
            change.if_none_match = request.if_none_match;
            change.if_match = request.if_match;
            change.body = body->pieces;
            acknowledge(std::move(change), std::move(*body), request.may_send, {}, done);
        });
    });
}

void WritebackStore::copy(CopyRequest request, StoreDone<PutResponse> done) {
    if (is_direct(request.key)) {
        environment_.store.copy(std::move(request), std::move(done));
        return;
    }
    done = counted(std::move(done));
    const std::string source = request.source_key;
    head(source, [this, request = std::move(request), done = std::move(done)](Result<ObjectInfo> found) {
        if (!found) {
            done(failure(std::move(found.error())));
            return;
        }
        if (!request.source_if_match.empty() && found->etag != request.source_if_match) {
            done(another_version(request.source_key));
            return;
        }
        check({request.key, request.if_none_match, ""},
              [this, request, object = std::move(*found), done](const Status& hold) {
                  if (!hold) {
                      done(failure(hold.error()));
                      return;
                  }
                  acknowledge_copy(request, object, done);
              });
    });
}

void WritebackStore::acknowledge_copy(const CopyRequest& request, ObjectInfo source, StoreDone<PutResponse> done) {
    UnsentChange change;
    change.kind = UnsentChange::Kind::kCopy;
    change.source_key = request.source_key;
    change.source_etag = source.etag;
    change.is_described = request.description.has_value();
    change.if_none_match = request.if_none_match;
    const std::uint64_t size = source.size;
    // A copy has the ETag of its source: that is what stores give it, as a rule.
    const std::string etag = source.etag;
    change.object = request.description.value_or(std::move(source));
    change.object.key = request.key;
    change.object.size = size;
    change.object.etag = etag;
    acknowledge(std::move(change), {}, request.may_send, {}, std::move(done));
}

void WritebackStore::remove(RemoveRequest request, StoreDone<void> done) {
    if (is_direct(request.key)) {
        environment_.store.remove(std::move(request), std::move(done));
        return;
    }
    done = counted(std::move(done));
    if (request.if_match.empty() || unsent_->find(request.key) != nullptr) {
        remove_known(std::move(request), done);
        return;
    }
    // A caller that names a version must learn that it is not there any more.
    Conditions conditions{request.key, false, request.if_match};
    check(std::move(conditions), [this, request = std::move(request), done = std::move(done)](const Status& hold) {
        if (!hold && hold.error().errno_value != ENOENT) {
            done(failure(hold.error()));
            return;
        }
        remove_known(request, done);
    });
}

void WritebackStore::remove_known(RemoveRequest request, const StoreDone<void>& done) {
    bool follows_unsent = false;
    if (const HeldPtr held = unsent_->find(request.key)) {
        if (held->removes() && unsent_->is_acknowledged(*held)) {
            done({});
            return;
        }
        if (!held->removes() && !request.if_match.empty() && request.if_match != held->change.object.etag) {
            done(another_version(request.key));
            return;
        }
        follows_unsent = !held->removes();
    }
    UnsentChange change;
    change.kind = UnsentChange::Kind::kRemove;
    change.follows_unsent = follows_unsent;
    change.object.key = request.key;
    change.object.last_modified = environment_.clock.wall_now();
    change.if_match = request.if_match;
    unsent_->acknowledge(std::move(change), {}, std::move(request.may_send), {}, done);
}

// Versions are not checked first: if another one is there by the time a removal is sent, it stays.
void WritebackStore::remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) {
    struct All {
        Mutex mutex;
        std::vector<DeleteFailure> failures GUARDED_BY(mutex);
        std::atomic<std::size_t> left;
    };
    const auto all = std::make_shared<All>();
    all->left = requests.size();
    if (requests.empty()) {
        done(std::vector<DeleteFailure>());
        return;
    }
    done = counted(std::move(done));
    for (RemoveRequest& request : requests) {
        const std::string key = request.key;
        auto removed = [all, key, done](const Status& status) {
            if (!status) {
                const MutexLock lock(all->mutex);
                all->failures.push_back({key, status.error()});
            }
            if (--all->left == 0) {
                std::vector<DeleteFailure> failures;
                {
                    const MutexLock lock(all->mutex);
                    failures.swap(all->failures);
                }
                done(std::move(failures));
            }
        };
        if (is_direct(key)) {
            environment_.store.remove(std::move(request), std::move(removed));
        } else {
            remove_known(std::move(request), std::move(removed));
        }
    }
}

}  // namespace ckptfs
