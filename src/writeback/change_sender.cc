// SPDX-License-Identifier: Apache-2.0
#include "writeback/change_sender.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/mutex.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "ckptfs/store_limits.h"

namespace ckptfs {
namespace {

// In bytes: a larger body is sent as the parts in which it was written.
constexpr std::uint64_t kMostAtOnce = std::uint64_t{8} << 20;
// Of one file; several files are sent in parallel.
constexpr std::size_t kPartsAtOnce = 4;

StoreDone<PutResponse> giving_etag(StoreDone<std::string> done) {
    return [done = std::move(done)](const Result<PutResponse>& response) {
        done(response.map([](const PutResponse& put) { return put.etag; }));
    };
}

// --- files

class FileSend : public std::enable_shared_from_this<FileSend> {
public:
    FileSend(const SendEnvironment& environment, std::shared_ptr<const HeldChange> held, StoreDone<std::string> done)
        : environment_(environment), held_(std::move(held)), done_(std::move(done)), parts_(pieces().size()) {}

    void begin() {
        if (goes_at_once()) {
            load_whole();
            return;
        }
        const ObjectInfo& object = held_->change.object;
        CreateUploadRequest request;
        request.key = object.key;
        request.metadata = object.metadata;
        request.content_type = object.content_type;
        request.content_encoding = object.content_encoding;
        request.storage_class = object.storage_class;
        request.other_headers = object.other_headers;
        environment_.store.create_upload(std::move(request), [self = shared_from_this()](Result<UploadId> upload) {
            if (!upload) {
                self->done_(failure(std::move(upload.error())));
                return;
            }
            self->upload_ = std::move(*upload);
            self->send_parts();
        });
    }

private:
    [[nodiscard]] const std::vector<BodyPiece>& pieces() const { return held_->body.pieces; }

    [[nodiscard]] bool goes_at_once() const {
        const ObjectInfo& object = held_->change.object;
        if (pieces().empty()) {
            return true;
        }
        // Only a PutObject can be pinned to the version that it replaces.
        const bool is_small = pieces().front().size <= kMostAtOnce || !held_->change.if_match.empty();
        return pieces().size() == 1 && is_small && pieces().front().place != BodyPiece::Place::kObject &&
               object.storage_class.empty() && object.other_headers.empty();
    }

    void load_whole() {
        if (pieces().empty() || pieces().front().place == BodyPiece::Place::kInline) {
            put(pieces().empty() ? Payload() : Payload::from_string(pieces().front().bytes));
            return;
        }
        environment_.loader.load(held_, pieces().front(), [self = shared_from_this()](Result<Payload> body) {
            if (!body) {
                self->done_(failure(std::move(body.error())));
                return;
            }
            self->put(std::move(*body));
        });
    }

    void put(Payload body) {
        const UnsentChange& change = held_->change;
        PutRequest request;
        request.key = change.object.key;
        request.body = std::move(body);
        request.metadata = change.object.metadata;
        request.content_type = change.object.content_type;
        request.content_encoding = change.object.content_encoding;
        request.if_none_match = change.if_none_match;
        request.if_match = change.if_match;
        environment_.store.put(std::move(request), giving_etag(done_));
    }

    void send_parts() EXCLUDES(mutex_) {
        std::vector<std::size_t> begun;
        {
            const MutexLock lock(mutex_);
            while (!error_ && next_ < pieces().size() && under_way_ < kPartsAtOnce) {
                begun.push_back(next_++);
                ++under_way_;
            }
        }
        for (const std::size_t part : begun) {
            send_part(part);
        }
    }

    void send_part(std::size_t part) {
        const BodyPiece& piece = pieces()[part];
        const int number = static_cast<int>(part) + 1;
        auto answered = [self = shared_from_this(), part](Result<UploadedPart> sent) {
            self->part_ended(part, std::move(sent));
        };
        if (piece.place == BodyPiece::Place::kObject) {
            const auto range = piece.is_whole ? std::nullopt : std::optional(ByteRange{piece.offset, piece.size});
            environment_.store.upload_part_copy({upload_, number, piece.key, piece.etag, range}, std::move(answered));
        } else if (piece.place == BodyPiece::Place::kInline) {
            Payload body = Payload::from_string(piece.bytes);
            const std::uint32_t checksum = crc32c(body);
            environment_.store.upload_part({upload_, number, std::move(body), checksum}, std::move(answered));
        } else {
            environment_.loader.load(
                held_, piece,
                [self = shared_from_this(), number, &piece, answered = std::move(answered)](Result<Payload> body) {
                    if (!body) {
                        answered(failure(std::move(body.error())));
                        return;
                    }
                    // The store verifies the checksum that was computed when the piece was written.
                    self->environment_.store.upload_part({self->upload_, number, std::move(*body), checksum_of(piece)},
                                                         answered);
                });
        }
    }

    void part_ended(std::size_t part, Result<UploadedPart> sent) EXCLUDES(mutex_) {
        bool is_last = false;
        {
            const MutexLock lock(mutex_);
            --under_way_;
            if (sent) {
                parts_[part] = std::move(*sent);
            } else if (!error_) {
                error_ = std::move(sent.error());
            }
            is_last = under_way_ == 0 && (error_ || next_ == pieces().size());
        }
        if (is_last) {
            end();
        } else {
            send_parts();
        }
    }

    // Called when all parts have ended.
    void end() EXCLUDES(mutex_) {
        std::optional<Error> error;
        CompleteRequest request;
        {
            const MutexLock lock(mutex_);
            error = error_;
            request.parts = parts_;
        }
        if (error) {
            give_up(std::move(*error));
            return;
        }
        const UnsentChange& change = held_->change;
        request.upload = upload_;
        request.write_id = write_id_of(change.object);
        request.size = change.object.size;
        request.if_none_match = change.if_none_match;
        environment_.store.complete_upload(std::move(request), [self = shared_from_this()](Result<PutResponse> put) {
            if (!put) {
                self->give_up(std::move(put.error()));
                return;
            }
            self->done_(std::move(put->etag));
        });
    }

    void give_up(Error error) {
        environment_.store.abort_upload(upload_, [self = shared_from_this(), error = std::move(error)](
                                                     const Status& /*ended*/) { self->done_(failure(error)); });
    }

    const SendEnvironment environment_;
    const std::shared_ptr<const HeldChange> held_;
    const StoreDone<std::string> done_;
    UploadId upload_;

    Mutex mutex_;
    std::vector<UploadedPart> parts_ GUARDED_BY(mutex_);
    std::size_t next_ GUARDED_BY(mutex_) = 0;
    std::size_t under_way_ GUARDED_BY(mutex_) = 0;
    std::optional<Error> error_ GUARDED_BY(mutex_);
};

void send_file(const SendEnvironment& environment, std::shared_ptr<const HeldChange> held,
               StoreDone<std::string> done) {
    std::make_shared<FileSend>(environment, std::move(held), std::move(done))->begin();
}

// --- copies and removals

void send_copy(const SendEnvironment& environment, const std::shared_ptr<const HeldChange>& held,
               StoreDone<std::string> done) {
    const UnsentChange& change = held->change;
    CopyRequest request;
    request.source_key = change.source_key;
    request.key = change.object.key;
    request.source_if_match = change.source_etag;
    request.if_none_match = change.if_none_match;
    if (change.is_described) {
        request.description = change.object;
    }
    environment.store.copy(std::move(request), giving_etag(std::move(done)));
}

void remove_now(const SendEnvironment& environment, const std::shared_ptr<const HeldChange>& held,
                const std::string& if_match, StoreDone<std::string> done) {
    RemoveRequest request(held->key(), if_match);
    environment.store.remove(std::move(request), [held, done = std::move(done)](const Status& removed) {
        // ESTALE: the name has another version, which this removal did not mean.
        if (removed || removed.error().errno_value == ESTALE || removed.error().errno_value == ENOENT) {
            done(std::string());
            return;
        }
        done(failure(removed.error()));
    });
}

bool is_same_object(const ObjectInfo& one, const ObjectInfo& other) {
    return one.etag == other.etag && one.size == other.size && one.last_modified == other.last_modified &&
           write_id_of(one) == write_id_of(other);
}

// `told`: as HEAD or GET told it. Some stores tell the ETag with a listing only: it is that of the same version if HEAD
// tells the same before and after. Empty if another one, or none, has taken its place.
void complete_etag(ObjectStore& store, const std::string& key, const ObjectInfo& told, StoreDone<std::string> done) {
    if (!told.etag.empty()) {
        done(told.etag);
        return;
    }
    ListRequest request;
    request.prefix = key;
    request.max_keys = 1;
    store.list(request, [&store, key, told, done = std::move(done)](const Result<ListResponse>& page) {
        if (!page) {
            done(failure(page.error()));
            return;
        }
        const bool is_listed = !page->objects.empty() && page->objects.front().key == key;
        const std::string etag = is_listed ? page->objects.front().etag : "";
        store.head(key, [told, etag, done](const Result<ObjectInfo>& again) {
            const bool is_gone = !again && again.error().errno_value == ENOENT;
            if (!again && !is_gone) {
                done(failure(again.error()));
                return;
            }
            done(is_gone || !is_same_object(*again, told) ? std::string() : etag);
        });
    });
}

// The version of the name that is there; without an ETag if there is none.
void find_version(ObjectStore& store, const std::string& key, const StoreDone<ObjectInfo>& done) {
    store.head(key, [&store, key, done](const Result<ObjectInfo>& object) {
        if (!object) {
            done(object.error().errno_value == ENOENT ? Result<ObjectInfo>(ObjectInfo{}) : failure(object.error()));
            return;
        }
        complete_etag(store, key, *object, [object = *object, done](Result<std::string> etag) mutable {
            object.etag = etag.value_or("");
            done(etag ? Result<ObjectInfo>(std::move(object)) : failure(etag.error()));
        });
    });
}

// Whether the removal means this version. One that was to replace what was there, and was given up or lost, has left a
// version that is older than the removal.
bool is_meant(const ObjectInfo& there, const UnsentChange& removal) {
    return there.etag == removal.if_match || (removal.follows_unsent && !there.etag.empty() &&
                                              there.last_modified + kTimesDifferBy < removal.object.last_modified);
}

// Looks at the version first, as some stores ignore the condition: between the acknowledgement and now another client
// may have had hours to save the name anew.
void send_removal(const SendEnvironment& environment, const std::shared_ptr<const HeldChange>& held,
                  StoreDone<std::string> done) {
    if (held->change.if_match.empty()) {
        remove_now(environment, held, "", std::move(done));
        return;
    }
    find_version(environment.store, held->key(), [environment, held, done = std::move(done)](Result<ObjectInfo> there) {
        if (there && is_meant(*there, held->change)) {
            remove_now(environment, held, there->etag, done);
        } else {
            done(there.map([](const ObjectInfo& /*other*/) { return std::string(); }));
        }
    });
}

void send_now(const SendEnvironment& environment, std::shared_ptr<const HeldChange> held, StoreDone<std::string> done) {
    switch (held->change.kind) {
        case UnsentChange::Kind::kPut:
            send_file(environment, std::move(held), std::move(done));
            break;
        case UnsentChange::Kind::kCopy:
            send_copy(environment, held, std::move(done));
            break;
        case UnsentChange::Kind::kRemove:
            send_removal(environment, held, std::move(done));
            break;
    }
}

// --- changes that may have been made

// Whether the change is recognised by its bytes: it has no write ID, and they are few enough to lie in the log.
bool is_told_by_bytes(const UnsentChange& change) {
    return change.kind == UnsentChange::Kind::kPut && write_id_of(change.object).empty() &&
           std::all_of(change.body.begin(), change.body.end(),
                       [](const BodyPiece& piece) { return piece.place == BodyPiece::Place::kInline; });
}

StoreDone<std::string> giving_made(StoreDone<std::optional<std::string>> done) {
    return [done = std::move(done)](const Result<std::string>& etag) {
        done(etag.map([](const std::string& made) { return std::optional(made); }));
    };
}

void compare_bytes(const SendEnvironment& environment, const std::shared_ptr<const HeldChange>& held,
                   StoreDone<std::optional<std::string>> done) {
    const auto bytes = std::make_shared<std::string>();
    GetRequest request;
    request.key = held->key();
    request.is_small = true;
    request.on_body = [bytes](ByteSpan piece) {
        bytes->append(as_text(piece));
        return bytes->size() <= kMostInline;
    };
    ObjectStore& store = environment.store;
    store.get(std::move(request), [&store, held, bytes, done = std::move(done)](const Result<GetResponse>& got) {
        const std::string own = held->body.pieces.empty() ? "" : held->body.pieces.front().bytes;
        if (got && *bytes == own) {
            complete_etag(store, held->key(), got->object, giving_made(done));
        } else if (got || got.error().errno_value == ENOENT || got.error().errno_value == ECANCELED) {
            done(std::optional<std::string>());
        } else {
            done(failure(got.error()));
        }
    });
}

}  // namespace

bool is_made(const UnsentChange& change, const ObjectInfo& there) {
    const std::string write_id = write_id_of(change.object);
    if (!write_id.empty()) {
        return write_id_of(there) == write_id && there.size == change.object.size;
    }
    // A copy with its source's description.
    return change.kind == UnsentChange::Kind::kCopy && !change.is_described && there.etag == change.source_etag;
}

void find_made(const SendEnvironment& environment, const std::shared_ptr<const HeldChange>& held,
               StoreDone<std::optional<std::string>> done) {
    if (!held->may_be_made || held->removes()) {
        done(std::optional<std::string>());
        return;
    }
    if (is_told_by_bytes(held->change)) {
        compare_bytes(environment, held, std::move(done));
        return;
    }
    ObjectStore& store = environment.store;
    store.head(held->key(), [&store, held, done = std::move(done)](const Result<ObjectInfo>& there) {
        if (there && is_made(held->change, *there)) {
            complete_etag(store, held->key(), *there, giving_made(done));
        } else if (there || there.error().errno_value == ENOENT) {
            done(std::optional<std::string>());
        } else {
            done(failure(there.error()));
        }
    });
}

void send_change(const SendEnvironment& environment, std::shared_ptr<const HeldChange> held,
                 StoreDone<std::string> done) {
    find_made(environment, held, [environment, held, done = std::move(done)](Result<std::optional<std::string>> made) {
        if (!made) {
            done(failure(std::move(made.error())));
        } else if (*made) {
            done(std::move(**made));
        } else {
            send_now(environment, held, done);
        }
    });
}

}  // namespace ckptfs
