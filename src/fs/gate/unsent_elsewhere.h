// SPDX-License-Identifier: Apache-2.0
// What other mounts have acknowledged by their disks and not sent to the bucket (writeback/announcements.h).
//
// A commit marker over such files would complete a checkpoint with a hole. It waits while their mount is heard of, and
// is refused once that mount has not been heard of for kUnsentCountsFor, until the files are forgotten as failed files
// are.
//
// Threads: all functions may be called from any thread. look() and wait() block, for the blocking executor.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

struct UnsentDirectory {
    // Its key ends in '/', except for the top of a bucket.
    std::string directory;
    // The key of the object that announces it, and when that object was last written.
    std::string object;
    WallTime told{};
};

// The file that this mount announces as unsent while this key is unsent: the one that the key is, or is to become;
// empty if no marker depends on it. Pure.
[[nodiscard]] std::string told_as_unsent(const std::string& prefix, const std::string& key, const WriteConfig& config);
// Digests of the announcing objects for AskedBy::awaited, sorted. Pure.
[[nodiscard]] std::vector<std::uint64_t> digests_of(const std::vector<UnsentDirectory>& unsent);
// Whether this announcing object is one of those to wait for. Pure.
[[nodiscard]] bool is_awaited(const std::string& object, const AskedBy& by);
// Whether mounts tell each other something by this key, which must not wait for files. Pure.
[[nodiscard]] bool is_told_at_once(const std::string& prefix, const std::string& key);

class UnsentElsewhere {
public:
    explicit UnsentElsewhere(SharedState& state) : state_(state) {}

    // What is announced for `directory` and below it; ask() returns the same as a future.
    void collect(const std::string& directory, const AskedBy& by, Reply<std::vector<UnsentDirectory>> reply) const;
    [[nodiscard]] std::future<Result<std::vector<UnsentDirectory>>> ask(const std::string& directory,
                                                                        const AskedBy& by) const;
    // Success if nothing is announced; else EIO, retryable if it is on its way. The error says that `what` is not
    // committed.
    Status look(const std::string& directory, const AskedBy& by, const std::string& what);
    // As above, but waits until nothing is on its way, or a request begun at `begun` would not be retried any more.
    Status wait(const std::string& directory, const AskedBy& by, const std::string& what, SteadyTime begun);

private:
    [[nodiscard]] ListRequest request_for(const std::string& directory, std::string token) const;
    // Adds what one page of the listing announces.
    void add(std::vector<UnsentDirectory>& unsent, const ListResponse& page, const AskedBy& by) const;
    // Whether the announcing mount has not been heard of for too long. Where a disk asks, that is counted from when
    // this mount first saw the late announcement, since the store may not have answered the other mount for as long.
    [[nodiscard]] bool is_lost(const UnsentDirectory& unsent, const AskedBy& by) EXCLUDES(mutex_);
    [[nodiscard]] std::string host_of(const UnsentDirectory& unsent) const;
    [[nodiscard]] Failure refusal(const UnsentDirectory& unsent, const std::string& what, bool is_coming) const;

    struct Seen {
        WallTime told{};
        // When this mount first saw the announcement with this `told`.
        SteadyTime at{};
        // For the last time.
        SteadyTime looked_at{};
    };

    SharedState& state_;
    Mutex mutex_;
    // Late announcements, by the keys of their objects.
    std::map<std::string, Seen> late_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
