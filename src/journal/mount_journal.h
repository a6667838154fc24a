// SPDX-License-Identifier: Apache-2.0
// What a mount has begun and not ended, in a file of its own, so that the next mount of the same source at the same
// place can end it after a kill: uploads, hidden objects, and the records of renames. It also has the failed files of
// which other mounts could not be told yet, for the next mount to tell.
//
// A lock on the file says that its mount is alive. The file has a line for each event (journal_text.h). It survives the
// process; a power cut leaves what the kernel had written, or with JournalKept::kOnDisk, as beside what --ack disk has
// acknowledged, all of it.
//
// journal_leftovers.h has what is about the files of other mounts.
// Threads: functions that note an event may be called from any thread. They return once it is in the file, but wait for
// a directory that does not respond only for a limited time (journal_file.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "ckptfs/status.h"
#include "journal/journal_file.h"
#include "journal/journal_text.h"

namespace ckptfs {

inline constexpr std::string_view kJournalEnding = ".uploads";

// `configured` if it is set; otherwise /var/lib/ckptfs for root, $XDG_STATE_HOME/ckptfs or ~/.local/state/ckptfs for
// others, and nothing for users without a home.
[[nodiscard]] std::optional<std::string> state_directory(const std::string& configured, uid_t self,
                                                         const Environment& environment);

// How the names of the files of mounts of `source` at `mount_point` begin. `host`: given where several machines may
// share the directory, as a home; empty otherwise, because containers of one machine have names of their own. `server`:
// whose bucket it is (s3/endpoint.h), after a dot; files of earlier versions have no dot, and may be of any.
[[nodiscard]] std::string journal_place(const std::string& host, const std::string& source,
                                        const std::string& mount_point, const std::string& server);

// The file of an upload that a mount leaves.
enum class UploadedFile {
    kUnfinished,
    // Saved by another upload, or on a disk from which it is sent again.
    kSafe,
};

class MountJournal {
public:
    // Makes the directory, with mode 0700, and the file, with 0600.
    static Result<std::unique_ptr<MountJournal>> create(
        const std::string& directory, const std::string& place,
        std::chrono::milliseconds longest_wait = JournalFile::kLongestWait,
        JournalKept kept = JournalKept::kByTheKernel);
    // A journal that remembers events while the mount lives, and leaves nothing of its own to the next.
    static std::unique_ptr<MountJournal> in_memory();
    // Removes the file, unless something is left.
    ~MountJournal();
    MountJournal(const MountJournal&) = delete;
    MountJournal& operator=(const MountJournal&) = delete;

    // Notes that an upload is about to be requested.
    [[nodiscard]] UploadIntent intend(const std::string& key, WallTime asked,
                                      UploadedFile file = UploadedFile::kUnfinished);
    // Notes intents of earlier mounts, with all that their journals had of them. Returns them with numbers of this
    // journal, in the same order.
    [[nodiscard]] std::vector<UploadIntent> take_over(const std::vector<UploadIntent>& left);
    // The intent, with what is known by now of an earlier version that was sent.
    [[nodiscard]] UploadIntent outlived(UploadIntent intent);
    // A version that a disk has acknowledged at `acknowledged` is in the bucket only now: it is none of the unfinished
    // files that were requested since.
    void version_sent(const std::string& key, WallTime acknowledged, WallTime now, const std::string& etag);
    // Called once the upload that has begun is noted, which stands for the file from then on, or once something else
    // has saved the file.
    void intent_answered(const UploadIntent& intent);
    void intent_ended(const UploadIntent& intent);
    void begun(const UploadId& upload, UploadedFile file = UploadedFile::kUnfinished);
    void ended(const UploadId& upload);
    // Another upload has saved the file of this one, which was given up or comes too late. Does nothing if this one is
    // not open.
    void made_good(const UploadId& upload);
    [[nodiscard]] bool is_open(const UploadId& upload);
    // Uploads of the same key that are open and were begun before this one; all of them if its ID is empty.
    [[nodiscard]] std::vector<UploadId> begun_before(const UploadId& upload);
    // Notes an object that only this mount knows. Whether it was not open before; a second call makes no difference.
    bool object_begun(const std::string& key);
    void object_ended(const std::string& key);
    // Notes a failed file of which other mounts are not told yet.
    void failure_begun(const std::string& key, const std::string& record);
    void failure_ended(const std::string& key);
    // Removes the journal of an earlier mount, all of which has ended or is noted here, once that is in this file: a
    // full disk may not have taken it yet. A journal in memory removes it when the last of what is open ends. `lock` is
    // held until then.
    void replace(std::string path, FileDescriptor lock);
    [[nodiscard]] const std::string& path() const { return file_.path(); }

private:
    MountJournal(std::string path, FileDescriptor file, std::chrono::milliseconds longest_wait, JournalKept kept)
        : file_(std::move(path), std::move(file), longest_wait, kept) {}
    void note_file_ended(const UploadIntent& intent) EXCLUDES(mutex_);
    // `what`: identifies it among all that can be open. Whether it was not open before.
    bool note_begun(const std::string& what, const std::string& line);
    // Adds a line to what is open.
    void note_more(const std::string& what, const std::string& line);
    void note_ended(const std::string& what, const std::string& line);
    // Whether it was not open before.
    bool open(const std::string& what, const std::string& line) REQUIRES(mutex_);
    void append(const std::string& line) REQUIRES(mutex_);
    void rewrite() REQUIRES(mutex_);
    void shorten() REQUIRES(mutex_);
    void remove_replaced() REQUIRES(mutex_);

    struct Replaced {
        std::string path;
        FileDescriptor lock;
    };

    // Called in the order in which events are noted here.
    JournalFile file_;
    Mutex mutex_;
    std::uint64_t last_intent_ GUARDED_BY(mutex_) = 0;
    // Open uploads in the order in which they began.
    std::vector<UploadId> uploads_ GUARDED_BY(mutex_);
    // Intents of unfinished files, by key and number.
    std::map<std::pair<std::string, std::uint64_t>, UploadIntent> unfinished_ GUARDED_BY(mutex_);
    // Lines of what is open.
    std::map<std::string, std::string> open_ GUARDED_BY(mutex_);
    // Journals that are still needed, because this one has no file.
    std::vector<Replaced> replaced_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
