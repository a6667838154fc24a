// SPDX-License-Identifier: Apache-2.0
// Markers and records as objects: read with their age, and written only over what the writer has seen.
//
// Every write is conditional (If-Match, If-None-Match), so that of two mounts that change a marker at once exactly one
// succeeds. A store that answers NotImplemented is asked again without a condition.
//
// Threads: all functions block, unless it says otherwise; for the blocking executor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "fs/objects/directory_marker.h"

namespace ckptfs::fs {

struct StoredMarker {
    // Empty where the object holds something else.
    std::optional<DirectoryMarker> marker;
    std::string etag;
    // Age by the store's own clock, to the second.
    Milliseconds age{0};
    WallTime modified{};
    // For a directory's marker: when the directory was made.
    WallTime made{};
};

// ENOENT where there is no object.
Result<StoredMarker> read_marker(ObjectStore& store, const Clock& clock, const std::string& key);
// A rename's list of names; empty if there is no object, or it holds something else.
Result<std::optional<std::vector<MovedName>>> read_names(ObjectStore& store, const std::string& key);

// `seen`: the ETag of what is replaced; empty: there must be nothing. ESTALE, EEXIST or ENOENT if something else is
// there. `made`: when the directory was made, if not now.
Result<PutResponse> write_marker(ObjectStore& store, const std::string& key, const DirectoryMarker& marker,
                                 const std::string& seen, std::optional<WallTime> made = std::nullopt);
// As above, for the marker of an ordinary directory.
Result<PutResponse> write_empty_marker(ObjectStore& store, const std::string& key, const std::string& seen,
                                       std::optional<WallTime> made = std::nullopt);
// As above, with an ETag of its own. All empty markers have the same one: a request that is late replaces any of them.
Result<PutResponse> write_unique_marker(ObjectStore& store, const std::string& key, const std::string& seen,
                                        std::optional<WallTime> made = std::nullopt);
// Does not block.
void write_names(ObjectStore& store, const std::string& key, const std::vector<MovedName>& names, StoreDone<void> done);

// The error (EIO) of a rename that another mount may have ended, since it sent no heartbeat for too long.
[[nodiscard]] Failure taken_over(const std::string& source);

// Whether a conditional write failed because it found something else than `seen`.
[[nodiscard]] bool is_lost_race(const Error& error);

}  // namespace ckptfs::fs
