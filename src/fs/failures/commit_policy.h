// SPDX-License-Identifier: Apache-2.0
// What stands in the way of a commit: pure decisions, and the record of a failed file as text.
//
// A program that publishes a checkpoint does so with one last file, its commit marker. When another file below the
// marker's directory could not be written, on whatever node, the marker must not appear until that file was written
// again or removed: some programs never hear of the failure, and would publish a checkpoint with a hole.
//
// All times except `now` are the store's, to the second.
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
#include "fs/failed_record.h"

namespace ckptfs::fs {

// The body of a record object, without the key and the time, which the object itself has.
[[nodiscard]] std::string record_text(const FailedRecord& record);
// Never fails: fields that cannot be read are absent.
[[nodiscard]] FailedRecord parse_record(std::string_view text);

// Makes the error retryable: the store did not reply, so nothing is known.
[[nodiscard]] inline Failure ask_again(Error error) {
    error.retryable = true;
    return failure(std::move(error));
}

// For messages: "60 min".
[[nodiscard]] std::string in_minutes(WallTime::duration time);

// The part of a key behind its last '/'.
[[nodiscard]] std::string file_name(const std::string& key);
// The part of a key up to its last '/', included.
[[nodiscard]] std::string directory_of(const std::string& key);
// The directories above the key, each with its '/', from the key's own up to `top`; without the bucket itself.
[[nodiscard]] std::vector<std::string> directories_above(const std::string& key, const std::string& top);

[[nodiscard]] bool is_commit_marker(const std::string& key, const WriteConfig& config);
// True for markers, and for logs, whose loss makes no checkpoint wrong.
[[nodiscard]] bool may_be_missing(const std::string& key, const WriteConfig& config);
// A name that a program gives to a file only until it is whole (".tmpA1b2C3", "x.tmp", "x.partial", ".x.A1b2C3").
[[nodiscard]] bool is_temporary_name(std::string_view name);

// What the bucket holds where a file failed.
struct NameState {
    std::optional<ObjectInfo> object;
    // When its directory, or one above it, was last made; the epoch where that is not known.
    WallTime directory_made{};
};

// The earlier of both, if either is known.
[[nodiscard]] std::optional<WallTime> earlier(const std::optional<WallTime>& one, const std::optional<WallTime>& other);
// Whether the writer that failed has left this object.
[[nodiscard]] bool is_left_by_failed(const std::vector<std::string>& unanswered, const ObjectInfo& object);
// When, at the latest, a file had failed whose record was written at `written`.
[[nodiscard]] WallTime failed_by(WallTime written, std::chrono::seconds late);
// False once the file was written again, its directory was made again, or `ttl` has passed.
[[nodiscard]] bool still_failed(const FailedRecord& record, const NameState& state, WallTime now, Milliseconds ttl);
// How long a record is kept: for a day at least, because another mount's `ttl` may be longer than this one's.
[[nodiscard]] Milliseconds time_to_keep(Milliseconds ttl);
// Whether another mount's record has expired here, by its age alone, and is kept all the same.
[[nodiscard]] bool counts_only_elsewhere(const FailedRecord& record, WallTime now, Milliseconds ttl);
// Whether another mount that announced unsent files at `told`, and does so again every kUnsentToldEvery, still counts
// as having some: as far as is known, and for as long as failed files count.
[[nodiscard]] bool counts_as_unsent(WallTime told, WallTime now, Milliseconds ttl);
// Whether files announced as unsent at `told` may still arrive by themselves.
[[nodiscard]] bool is_on_its_way(WallTime told, WallTime now);
// Whether another mount's upload may still become a file. False if the name was written since the upload began (a dead
// mount has left the upload), or if the upload is older than `ttl`.
[[nodiscard]] bool is_in_the_making(const OpenUpload& upload, const std::optional<ObjectInfo>& object, WallTime now,
                                    Milliseconds ttl);

}  // namespace ckptfs::fs
