// SPDX-License-Identifier: Apache-2.0
// What stands in the way of a commit: pure decisions, and the record of a failed file as text.
//
// A program that publishes a checkpoint does so with one last file, its commit marker. When another file below the
// marker's directory could not be written, on whatever node, the marker must not appear until that file was written
// again or removed: some programs never hear of the failure, and would publish a checkpoint with a hole.
//
// All times but `now` are the store's, to the second.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ckptfs/clock.h"
#include "ckptfs/config.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"

namespace ckptfs::fs {

struct FailedRecord {
    // Of the file.
    std::string key;
    std::string host;
    // One line.
    std::string reason;
    // The version that stayed; empty where there was none. Absent where it is not known.
    std::optional<std::string> etag_before;
    // Commits of the file that failed, by kWriteIdMetadata: one whose answer was lost may have taken effect.
    std::vector<std::string> unanswered{};
    // At the latest: when the record was written, less `late`.
    WallTime failed{};
    // For how long, at least, the file had failed when the record was written.
    std::chrono::seconds late{0};
    // When the file failed, where its record was written later: its directory was renamed since, or its mount ended.
    std::optional<WallTime> since{};
    // When the file began to be written, where that is known.
    std::optional<WallTime> began{};
    // In a mount's journal: when the file failed under this name, by the mount's clock.
    std::optional<WallTime> noted{};
    // That failed to write it, where it was one of this mount.
    pid_t process = 0;
    // Of this mount's own: which failure of the file it is, from 1.
    int number = 0;
    // Of the record as another mount has written it; empty where it is this mount's own.
    std::string record_etag;
};

// Of those that failed on a mount, the ones that were neither written again nor removed.
struct UnwrittenFiles {
    std::uint64_t count = 0;
    // The last that failed, the latest first.
    std::vector<FailedRecord> latest;
};

// The body of a record object; what it does not say (key, time) the object does.
[[nodiscard]] std::string record_text(const FailedRecord& record);
// Never fails: what cannot be read is absent.
[[nodiscard]] FailedRecord parse_record(std::string_view text);

// Nothing is known: the store did not answer.
[[nodiscard]] inline Failure ask_again(Error error) {
    error.retryable = true;
    return failure(std::move(error));
}

// "60 min"
[[nodiscard]] std::string in_minutes(WallTime::duration time);

// The part of a key behind its last '/'.
[[nodiscard]] std::string file_name(const std::string& key);
// The part of a key up to its last '/', that included.
[[nodiscard]] std::string directory_of(const std::string& key);
// With their '/', from the key's own up to `top`; without the bucket itself.
[[nodiscard]] std::vector<std::string> directories_above(const std::string& key, const std::string& top);

[[nodiscard]] bool is_commit_marker(const std::string& key, const WriteConfig& config);
// Markers, and logs, whose loss makes no checkpoint wrong.
[[nodiscard]] bool may_be_missing(const std::string& key, const WriteConfig& config);
// A name that a program gives to a file only until it is whole (".tmpA1b2C3", "x.tmp", "x.partial", ".x.A1b2C3").
[[nodiscard]] bool is_temporary_name(std::string_view name);

// What the bucket holds where a file failed.
struct NameState {
    std::optional<ObjectInfo> object;
    // When its directory, or one above it, was last made; the epoch where that is not known.
    WallTime directory_made{};
};

// The earlier of both, where either is known.
[[nodiscard]] std::optional<WallTime> earlier(const std::optional<WallTime>& one, const std::optional<WallTime>& other);
// Whether this object is what the writer that failed has left.
[[nodiscard]] bool is_left_by_failed(const std::vector<std::string>& unanswered, const ObjectInfo& object);
// By when the file of a record had failed that was written at this time.
[[nodiscard]] WallTime failed_by(WallTime written, std::chrono::seconds late);
// False once the file was written again, its directory was made anew, or `ttl` has passed.
[[nodiscard]] bool still_failed(const FailedRecord& record, const NameState& state, WallTime now, Milliseconds ttl);
// Every mount has a `ttl` of its own: for how long a record is kept that counts on another, if not on this one.
[[nodiscard]] Milliseconds time_to_keep(Milliseconds ttl);
// Whether this record of another mount has expired on this one, by its age alone, and is kept all the same.
[[nodiscard]] bool counts_only_elsewhere(const FailedRecord& record, WallTime now, Milliseconds ttl);
// Whether another mount that said so at this time, and every kUnsentToldEvery, still has files that are not in the
// bucket: as far as is known, and for as long as failed files count.
[[nodiscard]] bool counts_as_unsent(WallTime told, WallTime now, Milliseconds ttl);
// Whether they may still come by themselves.
[[nodiscard]] bool is_on_its_way(WallTime told, WallTime now);
// Whether an upload that another mount began may still be a file in the making; false for what a dead mount left and
// another writer wrote again since, and for what is older than `ttl`.
[[nodiscard]] bool is_in_the_making(const OpenUpload& upload, const std::optional<ObjectInfo>& object, WallTime now,
                                    Milliseconds ttl);

}  // namespace ckptfs::fs
