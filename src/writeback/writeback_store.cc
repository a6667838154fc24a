// SPDX-License-Identifier: Apache-2.0
#include "writeback/writeback_store.h"

#include <cerrno>
#include <optional>
#include <utility>

#include "writeback/merged_listing.h"
#include "writeback/store_rules.h"

namespace ckptfs {
namespace {

// Tries of a read whose source is gone, as the change itself may have been made: enough for a request whose reply is
// late.
constexpr int kMostTries = 100;
constexpr Milliseconds kTryAgainAfter{50};

}  // namespace

WritebackStore::WritebackStore(const WritebackEnvironment& environment, std::unique_ptr<UnsentChanges> unsent)
    : environment_(environment),
      unsent_(std::move(unsent)),
      uploads_(*unsent_),
      took_bytes_at_(environment.clock.now().time_since_epoch().count()) {}

Result<std::unique_ptr<WritebackStore>> WritebackStore::open(const WritebackEnvironment& environment) {
    Result<std::unique_ptr<UnsentChanges>> unsent = UnsentChanges::open(environment);
    if (!unsent) {
        return failure(std::move(unsent.error()));
    }
    return std::unique_ptr<WritebackStore>(new WritebackStore(environment, std::move(*unsent)));
}

WritebackStore::~WritebackStore() {
    stopping_ = true;
    unsent_->stop();
    MutexLock lock(calls_mutex_);
    calls_ended_.wait(lock, [this]() REQUIRES(calls_mutex_) { return calls_ == 0; });
}

// --- reading

void WritebackStore::head(std::string key, StoreDone<ObjectInfo> done) {
    done = counted(std::move(done));
    if (const HeldPtr held = unsent_->find(key)) {
        done(held->removes() ? Result<ObjectInfo>(no_such_key(key)) : held->change.object);
        return;
    }
    environment_.store.head(key, [this, done = std::move(done)](Result<ObjectInfo> object) {
        if (object) {
            unsent_->show_as_here(*object);
        }
        done(std::move(object));
    });
}

void WritebackStore::get(GetRequest request, StoreDone<GetResponse> done) {
    done = counted(std::move(done));
    if (const HeldPtr held = unsent_->find(request.key)) {
        get_held(std::move(request), held, std::move(done));
    } else {
        get_sent(std::move(request), std::move(done));
    }
}

void WritebackStore::get_version(GetRequest request, const HeldPtr& held, StoreDone<GetResponse> done) {
    get_held(std::move(request), held, counted(std::move(done)));
}

Milliseconds WritebackStore::quiet_for() const {
    const SteadyTime took_bytes{SteadyTime::duration(took_bytes_at_.load())};
    return std::chrono::duration_cast<Milliseconds>(environment_.clock.now() - took_bytes);
}

void WritebackStore::get_sent(GetRequest request, StoreDone<GetResponse> done) {
    if (!request.if_match.empty()) {
        request.if_match = unsent_->etag_there(request.key, request.if_match);
        // The caller's time may be that of the acknowledgement, not the store's. What is acknowledged here has an ETag.
        request.if_modified = {};
    }
    environment_.store.get(std::move(request), [this, done = std::move(done)](Result<GetResponse> got) {
        if (got) {
            unsent_->show_as_here(got->object);
        }
        done(std::move(got));
    });
}

void WritebackStore::get_held(GetRequest request, const HeldPtr& held, StoreDone<GetResponse> done) {
    const ObjectInfo& object = held->change.object;
    if (held->removes()) {
        done(no_such_key(request.key));
        return;
    }
    if (!request.if_match.empty() && request.if_match != object.etag) {
        done(another_version(request.key));
        return;
    }
    const std::optional<ByteRange> range = range_in(request.range, object.size);
    if (!range) {
        done(invalid_range(request.key));
        return;
    }
    GetResponse response;
    response.object = object;
    response.offset = range->offset;
    response.length = range->length;
    response.answered_at = environment_.clock.wall_now();
    response.has_checksum = range->length == object.size && held->body.is_local();
    const auto read = std::make_shared<HeldRead>(HeldRead{});
    read->held = held;
    read->range = *range;
    read->on_body = std::move(request.on_body);
    read->on_unidentified = std::move(request.on_unidentified);
    read->response = std::move(response);
    read->done = std::move(done);
    read_held(read);
}

void WritebackStore::read_held(const std::shared_ptr<HeldRead>& read) {
    TakeBytes take = [read](ByteSpan bytes) {
        read->range.offset += bytes.size();
        read->range.length -= bytes.size();
        return read->on_body(bytes);
    };
    const BodySources sources{
        environment_.disk, [this, read](const Body& /*body*/, const BodyPiece& piece, ByteRange range, TakeBytes taking,
                                        std::function<void(Status)> done) {
            fetch(read, piece, range, std::move(taking), std::move(done));
        }};
    read_body(sources, read->held, read->range.offset, read->range.length, std::move(take),
              [this, read](const Status& status) { held_read_ended(read, status); });
}

void WritebackStore::HeldRead::tells_no_version() {
    is_unidentified = true;
    if (on_unidentified) {
        on_unidentified();
    }
}

void WritebackStore::fetch(const std::shared_ptr<HeldRead>& read, const BodyPiece& piece, ByteRange range,
                           TakeBytes take, std::function<void(Status)> done) {
    GetRequest request;
    request.key = piece.key;
    request.range = range;
    request.on_body = std::move(take);
    request.on_unidentified = [read] { read->tells_no_version(); };
    auto got = [done = std::move(done)](const Result<GetResponse>& response) {
        done(response ? Status() : failure(response.error()));
    };
    if (const HeldPtr source = read->held->body.source(piece); source != nullptr && unsent_->is_unsent(*source)) {
        get_held(std::move(request), source, std::move(got));
    } else {
        request.if_match = unsent_->etag_there(piece.key, piece.etag);
        environment_.store.get(std::move(request), std::move(got));
    }
}

void WritebackStore::held_read_ended(const std::shared_ptr<HeldRead>& read, const Status& status) {
    if (status) {
        read->done(std::move(read->response));
        return;
    }
    const int error = status.error().errno_value;
    if (read->is_unidentified || (error != ESTALE && error != ENOENT)) {
        read->done(failure(status.error()));
        return;
    }
    // The object that the bytes are read from is gone.
    const ObjectInfo& object = read->held->change.object;
    if (!unsent_->is_unsent(*read->held)) {
        read_made(read, unsent_->etag_there(object.key, object.etag));
        return;
    }
    // Perhaps the change has just been made, and this mount does not know yet.
    environment_.store.head(object.key, [this, read, status](const Result<ObjectInfo>& there) {
        if (there && is_made(read->held->change, *there)) {
            read_made(read, there->etag);
        } else if (++read->tries < kMostTries && !stopping_) {
            environment_.timer.after(kTryAgainAfter, [this, read] { read_held(read); });
        } else {
            read->done(failure(status.error()));
        }
    });
}

void WritebackStore::read_made(const std::shared_ptr<HeldRead>& read, const std::string& etag) {
    GetRequest request;
    request.key = read->held->key();
    request.if_match = etag;
    request.range = read->range;
    request.on_body = read->on_body;
    request.on_unidentified = read->on_unidentified;
    environment_.store.get(std::move(request), [read](const Result<GetResponse>& rest) {
        read->done(rest ? Result<GetResponse>(std::move(read->response)) : failure(rest.error()));
    });
}

void WritebackStore::list(ListRequest request, StoreDone<ListResponse> done) {
    list_merged(environment_.store, *unsent_, std::move(request), counted(std::move(done)));
}

}  // namespace ckptfs
