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
#include "fs/version_fate.h"
#include "write/file_writer.h"

namespace ckptfs::fs {

// Steps of one kind that are under way on a version, and what waits for their end.
// Threads: all functions may be called from any thread; nothing is called under the lock but what if_none() is given.
class StepsUnderWay {
public:
    // False once they are shut out; then there is no end() to come.
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
    // At once where none is under way.
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
    // None begins any more; false, and no change, where some are under way.
    [[nodiscard]] bool shut_out() {
        const MutexLock lock(mutex_);
        shut_out_ = shut_out_ || under_way_ == 0;
        return shut_out_;
    }

    // `run` comes before whatever begins later: it may take a VersionFate's lock, and no other. False, and no call of
    // it, where some are under way.
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

// Of a handle that was let go of: which process had opened it, and how that one was ending.
// As one word: clang calls a library for an atomic struct that is aligned to less than its size.
struct alignas(8) LetGo {
    pid_t opener = kUnseenProcess;
    ExitState end = ExitState::kRunning;
};

struct WrittenVersion {
    // Counted in opens with O_TRUNC on this mount (SharedState::truncations).
    using Moment = std::uint64_t;

    explicit WrittenVersion(Moment truncated) : made_at(truncated), changed_at(truncated) {}

    // When it last cut away what was there; 0 where it did not.
    std::atomic<Moment> made_at;

    VersionFate fate;
    // What the name had when it was truncated, as far as this mount knew: no look at the bucket came before.
    // Guarded by the node table.
    std::optional<std::string> believed_etag;
    // Closes that are not decided yet: what is released meanwhile waits for them.
    StepsUnderWay closes;
    // Closes by processes that are not being killed, until what they publish is published: the death of a process that
    // only holds the file has nothing to say about it before.
    StepsUnderWay saves;
    // Renames that publish it under its new name. One that fails leaves the file that it was to replace, so the death
    // of a writer waits for their end: what they publish was begun before it.
    StepsUnderWay renames;
    // Commits, until the node knows what they have published.
    StepsUnderWay commits;
    // When it was last made, written or cut.
    std::atomic<Moment> changed_at;
    // When it was cut away by the latest version that is committed.
    std::atomic<Moment> replaced_at = 0;
    // Another node got the name while this was being written.
    std::atomic<bool> has_later = false;
    // What a later version, or one after that, was last committed as; its node may be gone. Guarded by the node table.
    std::optional<CommittedObject> replaced_by;
    // When the handle truncated it that was the first of those to write; 0 before that. Each has a moment of its own.
    std::atomic<Moment> first_truncating_writer = 0;
    // A later version took the name away by a rename: nothing is written under it any more.
    std::atomic<bool> has_lost_name = false;
    // Its directory was renamed, and its upload could not go with it: it has failed, under the name that it has now.
    std::atomic<bool> stayed_behind = false;
    // When the first handle to write without having truncated was opened; 0 before that.
    std::atomic<Moment> joined_at = 0;
    // Of those that a process had: the last. What a mapping has left is published, or not, for that one.
    std::atomic<LetGo> last_let_go = LetGo{};

    // Another open has truncated the name while this was empty, and has joined it. Should that one write a version of
    // its own, made at this moment, it cuts this one away.
    void truncated_again(Moment moment) {
        made_at = moment;
        changed_at = moment - 1;
    }

    // What it holds was cut away by a later version that is committed, as on a local disk: it is published only if
    // it is written to again.
    [[nodiscard]] bool is_truncated_away() const { return changed_at < replaced_at; }

    // What another handle writes that truncates it now is another version.
    [[nodiscard]] bool was_written() const { return joined_at != 0 || first_truncating_writer != 0; }

    // By a handle that did not truncate, and does not append. Moments of opens begin with 1 here.
    void joins(Moment opened) {
        Moment none = 0;
        if (joined_at == 0) {
            joined_at.compare_exchange_strong(none, opened + 1);
        }
    }

    // Whether the writes of a handle that truncated this while it was empty go into it: not where another such handle
    // has written, nor over what a handle wrote that had it open before. A handle opened later without O_TRUNC writes
    // the same file.
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
