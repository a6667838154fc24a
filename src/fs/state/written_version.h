// SPDX-License-Identifier: Apache-2.0
// What the handles of one version that is being written share besides its FileWriter.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/processes.h"
#include "fs/state/version_fate.h"
#include "write/file_writer.h"

namespace ckptfs::fs {

// Steps of one kind that are under way on a version, and what waits for their end. Threads: all functions may be called
// from any thread; no callback runs under the lock, except that of if_none().
class StepsUnderWay {
public:
    // Returns false once steps are shut out; end() must not be called then.
    [[nodiscard]] bool begin() {
        const MutexLock lock(mutex_);
        under_way_ += shut_out_ ? 0 : 1;
        return !shut_out_;
    }
    void end() {
        std::vector<std::function<void()>> due;
        {
            const MutexLock lock(mutex_);
            if (--under_way_ == 0) {
                due.swap(waiting_);
            }
        }
        for (const std::function<void()>& run : due) {
            run();
        }
    }
    // Calls `run` when no step is under way; at once if none is.
    void when_none(std::function<void()> run) {
        {
            const MutexLock lock(mutex_);
            if (under_way_ > 0) {
                waiting_.push_back(std::move(run));
                return;
            }
        }
        run();
    }
    [[nodiscard]] bool any() {
        const MutexLock lock(mutex_);
        return under_way_ > 0;
    }
    // Lets no step begin any more; returns false, and changes nothing, if some are under way.
    [[nodiscard]] bool shut_out() {
        const MutexLock lock(mutex_);
        shut_out_ = shut_out_ || under_way_ == 0;
        return shut_out_;
    }

    // Calls `run` before any later step begins; returns false, without calling it, if some are under way. `run` may
    // take a VersionFate's lock, and no other.
    template <class Run>
    [[nodiscard]] bool if_none(Run run) {
        const MutexLock lock(mutex_);
        if (under_way_ > 0) {
            return false;
        }
        run();
        return true;
    }

private:
    Mutex mutex_;
    int under_way_ GUARDED_BY(mutex_) = 0;
    bool shut_out_ GUARDED_BY(mutex_) = false;
    std::vector<std::function<void()>> waiting_ GUARDED_BY(mutex_);
};

// About a handle that was released: which process had opened it, and how that process was ending. One word, since clang
// calls a library for an atomic struct that is aligned to less than its size.
struct alignas(8) LetGo {
    pid_t opener = kUnseenProcess;
    ExitState end = ExitState::kRunning;
};

struct WrittenVersion {
    // A point in time, counted in opens with O_TRUNC on this mount (SharedState::truncations).
    using Moment = std::uint64_t;

    explicit WrittenVersion(Moment truncated) : made_at(truncated), changed_at(truncated) {}

    // When this version last truncated what was there; 0 if it did not.
    std::atomic<Moment> made_at;

    VersionFate fate;
    // ETag of what the name held when it was truncated, as far as this mount knew without asking the bucket. Guarded by
    // the node table.
    std::optional<std::string> believed_etag;
    // Closes that are not decided yet: a release meanwhile waits for them.
    StepsUnderWay closes;
    // Closes by processes that are not being killed, until what they publish is published: before that, the death of a
    // process that only holds the file decides nothing.
    StepsUnderWay saves;
    // Renames that publish this version under its new name. The death of a writer waits for their end: what they
    // publish was begun before it, and a rename that fails leaves the file that it was to replace.
    StepsUnderWay renames;
    // Commits, until the node knows what they have published.
    StepsUnderWay commits;
    // When this version was last made, written or resized.
    std::atomic<Moment> changed_at;
    // `made_at` of the latest committed version that has cut this one away; 0 if none has.
    std::atomic<Moment> replaced_at = 0;
    // Another node got the name while this was being written.
    std::atomic<bool> has_later = false;
    // The last commit by any later version of the name, whose node may be gone. Guarded by the node table.
    std::optional<CommittedObject> replaced_by;
    // When the first handle to write, of those that truncated this version, had truncated it; 0 before it writes. Each
    // handle has a moment of its own.
    std::atomic<Moment> first_truncating_writer = 0;
    // A later version took the name away by a rename: nothing is written under it any more.
    std::atomic<bool> has_lost_name = false;
    // The directory was renamed, and the upload could not go with it: the version has failed, under its new name.
    std::atomic<bool> stayed_behind = false;
    // When the first handle to write without having truncated was opened, plus 1; 0 before it writes.
    std::atomic<Moment> joined_at = 0;
    // Its failure was noted (FailedSiblings), which may have been made good since.
    std::atomic<bool> failure_was_noted = false;
    // The last released handle, of those that a process had. By it is decided whether what a mapping has left is
    // published.
    std::atomic<LetGo> last_let_go = LetGo{};

    // Another open has truncated the name while this version was empty, and has joined it. If its handle later writes a
    // version of its own, made at this moment, that one cuts this one away.
    void truncated_again(Moment moment) {
        made_at = moment;
        changed_at = moment - 1;
    }

    // A later version, which is committed, has cut away what this one holds, as on a local disk: this one is published
    // only if it is written to again.
    [[nodiscard]] bool is_truncated_away() const { return changed_at < replaced_at; }

    // Whether a handle has written, so that a handle which truncates the file now writes another version.
    [[nodiscard]] bool was_written() const { return joined_at != 0 || first_truncating_writer != 0; }

    // Notes a write by a handle that did not truncate, and does not append. Stores the moment plus 1, since 0 means
    // none.
    void joins(Moment opened) {
        Moment none = 0;
        if (joined_at == 0) {
            joined_at.compare_exchange_strong(none, opened + 1);
        }
    }

    // Whether a handle that truncated this version while it was empty writes into it: not if another such handle has
    // written, or one that had the file open before. A handle opened later without O_TRUNC writes the same file.
    bool belongs_to(Moment truncated) {
        const Moment joined = joined_at;
        if (joined != 0 && joined <= truncated) {
            return false;
        }
        Moment first = 0;
        return first_truncating_writer.compare_exchange_strong(first, truncated) || first == truncated;
    }
};

}  // namespace ckptfs::fs
