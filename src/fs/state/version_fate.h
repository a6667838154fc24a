// SPDX-License-Identifier: Apache-2.0
// What becomes of a file that is open for writing: which processes have unsaved bytes in it, and what the closes, syncs
// and deaths of its holders mean for it.
//
// What is committed or given up is a version: a node with its FileWriter, one attempt at a name. Many handles may be
// open on it, in processes that opened, inherited or were handed them, and not all of those write. The rules, which
// close_rule.h decides by:
//
//   - A close by a process that wrote commits, whatever else is open: the close returns, so what was written is there.
//     Only where the opener of the descriptor still holds it more may come: a shell runs one command after another.
//   - A close by the opener, if it wrote nothing, commits unless another process is at work: one that wrote and has not
//     closed, or that was handed the descriptor (Popen(stdout=file), then file.close()). That one's close will.
//   - A close by any other process means nothing.
//   - A process that a signal ends with bytes unsaved, its own or those written by a descriptor that it opened, leaves
//     the version half; so does any other that was the last to hold it. Nothing publishes it any more: no close or
//     release of those that hold it, no sync, no rename. Those that wrote, or made the file, are told (EIO), because
//     what they wrote is lost; to others their close is a success, unless a sync has failed before. What revives it is
//     a write that comes after the death: that program goes on and vouches for the file. A close or fsync of one that
//     wrote before does not: it says nothing of the part that died. The death of a process counts once, at its first
//     FLUSH: its later ones, and that /proc still shows it dying, say nothing of what was written since. A killed
//     process closes what it has open one after another: nothing is published while one that answers for what is
//     unsaved does so, though its FLUSH has not come and /proc shows no descriptor of it.
//   - If several truncated the file while it was empty, each answers for it, so that the death of one before anything
//     was written harms none of the others. Nor does it harm those that hold what was saved before.
//   - Logs grow: what was only appended to since it was saved, or has a log's name, is kept as far as it was written.
//   - For a writer that /proc does not show (another PID namespace), every FLUSH after a write commits and is waited
//     for, and RELEASE publishes nothing. A FLUSH that a signal interrupts as it comes is that of a killed process.
//
// Threads: all functions may be called from any thread; the mutex is a leaf.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/mutex.h"

namespace ckptfs::fs {

// Stands for a process that /proc does not show.
inline constexpr pid_t kUnseenProcess = 0;

// A version as seen by one process that closes it through a descriptor of this opener.
struct VersionState {
    // `unsaved`: something is not committed yet. `written`: some of that was written, not only created or truncated.
    bool unsaved = false;
    bool written = false;
    // The process has unsaved bytes in the version.
    bool wrote = false;
    // The process made the file, or truncated it while it was empty, and no commit has followed.
    bool made = false;
    // Another process made or truncated it so; `unseen_made`: one that /proc does not show, nor how it ends.
    bool others_made = false;
    bool unseen_made = false;
    // The process truncated a file that was empty and saved: nothing else is unsaved.
    bool only_truncated_again = false;
    // Nothing was written yet, and one of several that truncated the file was killed. The others are seen to end.
    bool gave_way = false;
    // The death of the process leaves the version half.
    bool answers_for_it = false;
    // All unsaved writes were at the end of the file.
    bool only_appended = false;
    // Some of what is unsaved came through a mapping.
    bool mapped = false;
    // The size was changed by truncate(2) or ftruncate(2), and no commit has followed.
    bool resized = false;
    // Processes that /proc does not show have unsaved bytes in the version.
    bool unseen_wrote = false;
    // A writer was killed, and no write has followed. `was_told`: a sync has failed because of that.
    bool left_by_killed_writer = false;
    bool was_told = false;
    // Other processes with unsaved bytes, or an unsaved size, in the version.
    std::vector<pid_t> other_writers;

    bool operator==(const VersionState&) const = default;
};

class VersionFate {
public:
    // Writes up to a commit are of one generation.
    using Generation = std::uint64_t;
    static constexpr Generation kNever = std::numeric_limits<Generation>::max();
    enum class Place : std::uint8_t { kInside, kEnd };

    // Notes that this process created the file, or truncated it by open(2); others that did so no longer answer for it.
    void made(pid_t opener);
    // Notes that this process truncated the file while it was empty, as others may have before. It vouches for what one
    // of those that was killed has left.
    void truncated_again(pid_t opener);
    // A process is being killed that `made` the version, as did others who answer for it now, or that only truncated it
    // again: it counts as if it had not. Returns false, and changes nothing, if that no longer holds.
    [[nodiscard]] bool gives_way(pid_t process);
    // A process that `made` the version has closed it, and /proc does not tell whether for good: it counts as one that
    // is not seen, whose close publishes nothing and is not the last word.
    void closed_unseen(pid_t process);
    // A process was killed in an open(2) that `made` the version or truncated it again, and no FLUSH tells of its
    // death: it counts as if it had not; if no other answers for the version, its death leaves it.
    void disowned(pid_t process);
    // Notes a change to another size by truncate(2) or ftruncate(2): the process is at work on the version, as one that
    // wrote.
    void resized(pid_t opener);
    // Notes such a change by truncate(2), which no process answers for where others are at work on the version.
    void resized_by_name();
    // Notes that this process has cut the file to nothing, and that nothing of others is left in it.
    void taken_over(pid_t opener);
    // Notes a write by `process` through a descriptor that `opener` opened. noted_change.h says when. `has_left`: set
    // before the FLUSH of a process that dies while it writes; such a write vouches for nothing. Null where it lives.
    void wrote(pid_t process, pid_t opener, Place place, const std::atomic<bool>* has_left = nullptr);
    // Notes that the process has opened the file to write.
    void opened(pid_t opener);
    // Notes a write of mapped pages, which any process that opened the file may have changed.
    void changed_by_mapping();
    [[nodiscard]] Generation generation() const { return generation_.load(); }

    // Around a commit that succeeds: what was noted before commit_begins() is saved. committed() returns whether only
    // writes at the end have been noted since the previous commit, so that the bytes saved before are unchanged.
    Generation commit_begins();
    bool committed(Generation begun);

    // `killed`: kUnseenProcess where it is not known.
    void leave_by_killed_writer(pid_t killed);
    [[nodiscard]] bool left_by_killed_writer() const;
    // A sync fails because a writer was, or is being, killed.
    void tell();
    // A killed writer left the version, and some of what is unsaved was written.
    [[nodiscard]] bool left_half() const;
    [[nodiscard]] VersionState state(pid_t process, pid_t opener) const;
    // Processes whose death leaves what is unsaved half.
    [[nodiscard]] std::vector<pid_t> answering() const;
    // The version was left by the death of this process, which has nothing to do with what was written since.
    [[nodiscard]] bool has_left(pid_t process) const;

private:
    struct Writer {
        pid_t process = 0;
        pid_t opener = 0;
        Generation last_write = 0;
    };

    struct Maker {
        pid_t opener = 0;
        Generation made = 0;
    };

    [[nodiscard]] bool is_unsaved(Generation noted) const REQUIRES(mutex_) { return noted >= first_unsaved_; }
    [[nodiscard]] bool is_unsaved(std::optional<Generation> noted) const REQUIRES(mutex_) {
        return noted && is_unsaved(*noted);
    }
    [[nodiscard]] bool is_counted(pid_t process) const REQUIRES(mutex_);
    // The process lives: the number that it has may have been that of one that was killed.
    void lives(pid_t process) REQUIRES(mutex_) { std::erase(counted_, process); }
    [[nodiscard]] bool answers(pid_t process, bool unsaved_only) const REQUIRES(mutex_);
    [[nodiscard]] bool is_written() const REQUIRES(mutex_);
    [[nodiscard]] bool is_made(pid_t process) const REQUIRES(mutex_);
    [[nodiscard]] bool is_made_by_others(pid_t process) const REQUIRES(mutex_);

    // Changed with the mutex held only; read without it as well.
    std::atomic<Generation> generation_ = 0;

    mutable Mutex mutex_;
    Generation first_unsaved_ GUARDED_BY(mutex_) = 0;
    std::vector<Writer> writers_ GUARDED_BY(mutex_);
    // Set when more processes wrote than are remembered: each may then have written.
    std::optional<Generation> many_ GUARDED_BY(mutex_);
    // Those that made the version, or truncated it while it was empty, each once.
    std::vector<Maker> makers_ GUARDED_BY(mutex_);
    // Generations of the last change of each kind; `begun_`: made or resized, to be other than what is saved.
    std::optional<Generation> begun_ GUARDED_BY(mutex_);
    std::optional<Generation> mapped_ GUARDED_BY(mutex_);
    std::optional<Generation> resized_ GUARDED_BY(mutex_);
    pid_t resizer_ GUARDED_BY(mutex_) = kUnseenProcess;
    // The last change that was not a write at the end.
    std::optional<Generation> changed_inside_ GUARDED_BY(mutex_);
    std::optional<Generation> written_inside_ GUARDED_BY(mutex_);
    bool left_ GUARDED_BY(mutex_) = false;
    bool was_told_ GUARDED_BY(mutex_) = false;
    // Since the file was last truncated.
    bool gave_way_ GUARDED_BY(mutex_) = false;
    // Killed processes whose death has left the version.
    std::vector<pid_t> counted_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::fs
