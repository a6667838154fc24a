// SPDX-License-Identifier: Apache-2.0
#include "fs/objects/marker_objects.h"

#include <algorithm>
#include <utility>

#include "base/store_wait.h"
#include "base/uuid.h"

namespace ckptfs::fs {

namespace {

// Some millions of names; what claims more is not a list of ours.
constexpr std::uint64_t kMaxNamesBytes = std::uint64_t{256} << 20;

struct Fetched {
    GetResponse response;
    std::string bytes;
};

Result<Fetched> fetch(ObjectStore& store, const std::string& key, std::uint64_t limit) {
    Fetched fetched;
    GetRequest request;
    request.key = key;
    request.range = ByteRange{0, limit, false};
    request.on_body = [&fetched](ByteSpan bytes) {
        fetched.bytes.append(as_text(bytes));
        return true;
    };
    Result<GetResponse> response = wait_for<GetResponse>([&](auto done) { store.get(std::move(request), done); });
    if (!response) {
        return failure(std::move(response.error()));
    }
    fetched.response = std::move(*response);
    return fetched;
}

Result<PutResponse> write(ObjectStore& store, const std::string& key, std::string body, const std::string& seen,
                          std::optional<WallTime> made) {
    PutRequest request;
    request.key = key;
    request.body = Payload::from_string(std::move(body));
    request.content_type = "application/x-directory";
    // Identifies a write of ours whose reply was lost.
    request.metadata[kWriteIdMetadata] = random_uuid();
    if (made) {
        request.metadata[kMadeMetadata] = made_text(*made);
    }
    request.if_match = seen;
    request.if_none_match = seen.empty();
    Result<PutResponse> written = wait_for<PutResponse>([&](auto done) { store.put(request, done); });
    if (!written && is_not_implemented(written.error())) {
        request.if_match.clear();
        request.if_none_match = false;
        written = wait_for<PutResponse>([&](auto done) { store.put(request, done); });
    }
    return written;
}

}  // namespace

Result<StoredMarker> read_marker(ObjectStore& store, const Clock& clock, const std::string& key) {
    const Result<Fetched> fetched = fetch(store, key, kDirectoryMarkerSize + 1);
    if (!fetched) {
        return failure(fetched.error());
    }
    const ObjectInfo& object = fetched->response.object;
    const WallTime answered = fetched->response.answered_at;
    const WallTime now = answered == WallTime{} ? clock.wall_now() : answered;
    StoredMarker stored;
    stored.marker = parse_marker(fetched->bytes);
    stored.etag = object.etag;
    stored.modified = object.last_modified;
    stored.made = directory_made(object);
    stored.age = std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(now - object.last_modified));
    return stored;
}

Result<std::optional<std::vector<MovedName>>> read_names(ObjectStore& store, const std::string& key) {
    const Result<Fetched> fetched = fetch(store, key, kMaxNamesBytes);
    if (fetched) {
        return parse_names(fetched->bytes);
    }
    if (fetched.error().errno_value == ENOENT) {
        return std::nullopt;
    }
    return failure(fetched.error());
}

Result<PutResponse> write_marker(ObjectStore& store, const std::string& key, const DirectoryMarker& marker,
                                 const std::string& seen, std::optional<WallTime> made) {
    return write(store, key, encode_marker(marker), seen, made);
}

Result<PutResponse> write_empty_marker(ObjectStore& store, const std::string& key, const std::string& seen,
                                       std::optional<WallTime> made) {
    return write(store, key, {}, seen, made);
}

Result<PutResponse> write_unique_marker(ObjectStore& store, const std::string& key, const std::string& seen,
                                        std::optional<WallTime> made) {
    return write(store, key, random_uuid(), seen, made);
}

void write_names(ObjectStore& store, const std::string& key, const std::vector<MovedName>& names,
                 StoreDone<void> done) {
    PutRequest request;
    request.key = key;
    request.body = Payload::from_string(encode_names(names));
    if (request.body.size() > kMaxNamesBytes) {
        done(failure(EFBIG, key + ": the directory holds too many names to be renamed"));
        return;
    }
    store.put(std::move(request), [done = std::move(done)](Result<PutResponse> written) {
        done(written ? Status{} : failure(std::move(written.error())));
    });
}

Failure taken_over(const std::string& source) {
    return failure(EIO, source + ": its rename sent no heartbeat for too long, and another mount may have ended it");
}

bool is_lost_race(const Error& error) {
    return error.errno_value == ESTALE || error.errno_value == EEXIST || error.errno_value == ENOENT;
}

}  // namespace ckptfs::fs
