// SPDX-License-Identifier: Apache-2.0
// What other mounts have acknowledged by their disks and not sent to the bucket (writeback/announcements.h).
//
// A commit marker over it would complete a checkpoint with a hole: it waits for those that are heard of, and is refused
// where a mount has not been heard of for kUnsentCountsFor, until that is forgotten as failed files are.
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
#include "fs/shared_state.h"

namespace ckptfs::fs {

struct UnsentDirectory {
    // Ends in '/', but for the top of a bucket.
    std::string directory;
    // That tells of it, and when that was written last.
    std::string object;
    WallTime told{};
};

// What this mount tells others is unsent while this key is: the file that it is, or is to become; empty where no marker
// depends on it. Pure.
[[nodiscard]] std::string told_as_unsent(const std::string& prefix, const std::string& key, const WriteConfig& config);
// For AskedBy, in order. Pure.
[[nodiscard]] std::vector<std::uint64_t> digests_of(const std::vector<UnsentDirectory>& unsent);
[[nodiscard]] bool is_awaited(const std::string& object, const AskedBy& by);
// Keys by which mounts tell each other something, which is not to wait for files. Pure.
[[nodiscard]] bool is_told_at_once(const std::string& prefix, const std::string& key);

class UnsentElsewhere {
public:
    explicit UnsentElsewhere(SharedState& state) : state_(state) {}

    // What there is in `directory` and below it.
    void collect(const std::string& directory, const AskedBy& by, Reply<std::vector<UnsentDirectory>> reply) const;
    [[nodiscard]] std::future<Result<std::vector<UnsentDirectory>>> ask(const std::string& directory,
                                                                        const AskedBy& by) const;
    // Success where there is nothing; a failure that is retryable where it is on its way. `what` is not made then.
    Status look(const std::string& directory, const AskedBy& by, const std::string& what);
    // The same, once nothing is on its way, or requests would not be tried again any more since `begun`.
    Status wait(const std::string& directory, const AskedBy& by, const std::string& what, SteadyTime begun);

private:
    [[nodiscard]] ListRequest request_for(const std::string& directory, std::string token) const;
    // Of one page.
    void add(std::vector<UnsentDirectory>& unsent, const ListResponse& page, const AskedBy& by) const;
    // A disk that asks waits for mounts whose store has not answered for as long: of what is told no more since they
    // could tell again.
    [[nodiscard]] bool is_lost(const UnsentDirectory& unsent, const AskedBy& by) EXCLUDES(mutex_);
    [[nodiscard]] std::string host_of(const UnsentDirectory& unsent) const;
    [[nodiscard]] Failure refusal(const UnsentDirectory& unsent, const std::string& what, bool is_coming) const;

    struct Seen {
        WallTime told{};
        // By this mount, for the first time.
        SteadyTime at{};
        // For the last time.
        SteadyTime looked_at{};
    };

    SharedState& state_;
    Mutex mutex_;
    // By the keys of what tells, where it is late.
    std::map<std::string, Seen> late_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
