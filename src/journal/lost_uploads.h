// SPDX-License-Identifier: Apache-2.0
// Finds and aborts uploads that a mount has begun without knowing: the reply to CreateMultipartUpload was lost, or the
// mount was killed before it came. They are invisible, paid for, and look to other mounts like a file that is being
// written.
//
// S3 does not say whose an upload is, and another mount may be writing the same key. So an upload is aborted only if a
// reply for its key was lost, it was not begun before that request, this mount does not know it as one of its files,
// and it was without a part on two looks, some seconds apart: a mount that gets the reply sends a part at once. A mount
// whose first part takes longer, and which finds its upload gone, begins another one (write/upload.h).
//
// The lost uploads of a mount that was killed are all that tells other mounts that its file is unfinished: they stay
// until others have been told of the file, which is tried again with each look. Where another reply to the same request
// came, the upload that it named stood for the file: that one tells of it, or it was saved.
//
// A request whose reply was lost may take effect late: its key is looked at again after a minute, and when the mount
// ends. Until then its intent stays in the journal, for the next mount.
//
// Ownership: store, timer, clock, journal and answers outlive it and every callback. Threads: all functions may be
// called from any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "ckptfs/clock.h"
#include "ckptfs/object_store.h"
#include "journal/mount_journal.h"
#include "s3/attempt.h"

namespace ckptfs {

// Watches the attempts of CreateMultipartUpload for replies that were lost before the one that came.
class LostAnswers final : public s3::AttemptObserver {
public:
    // A request for this key begins.
    void asked(const std::string& key);
    // A request for this key has ended. Whether a reply was lost since the first of those in flight began.
    [[nodiscard]] bool answered(const std::string& key);
    [[nodiscard]] bool is_under_way(const std::string& key) const;
    void ended(const s3::Attempt& attempt) override;

private:
    struct Requests {
        int under_way = 0;
        bool lost = false;
    };
    mutable Mutex mutex_;
    std::map<std::string, Requests, std::less<>> requests_ GUARDED_BY(mutex_);
};

class LostUploads {
public:
    struct Environment {
        ObjectStore& store;
        Timer& timer;
        const Clock& clock;
        MountJournal& journal;
        // Notified by `store`.
        LostAnswers& answers;
    };
    explicit LostUploads(const Environment& environment);
    ~LostUploads();
    LostUploads(const LostUploads&) = delete;
    LostUploads& operator=(const LostUploads&) = delete;

    // As ObjectStore::create_upload(); the intent is in the journal before the request is sent.
    void create_upload(CreateUploadRequest request, UploadedFile file, StoreDone<UploadId> done);
    // Something else has saved the file: earlier requests for it no longer mean that it is unfinished.
    void saved(const std::string& key);
    // Tells other mounts that the file of `last`, the latest intent of its key, is unfinished. Calls back with success
    // when the uploads of the key may be aborted.
    using TellOthers = std::function<void(const UploadIntent& last, StoreDone<void> done)>;
    // Takes the intents of a mount that was killed. Called before anything is sent that it has left, and before
    // begin().
    void note(const std::vector<UploadIntent>& intents);
    // Begins to look. `all_told` is called once others know of all files that the noted intents leave unfinished, or
    // these were saved; it may be null. Neither function is called any more after stop(nullptr).
    void begin(TellOthers tell_others, std::function<void()> all_told = nullptr);
    // For the end of the mount: looks once more, and calls `ended` when nothing more can be done. If `ended` is null,
    // as in the destructor, it does not look. Nothing may be begun afterwards.
    void stop(std::function<void()> ended);

private:
    class Search;
    const std::shared_ptr<Search> search_;
};

// Whether an upload of this key may come from a request sent at `asked`, by its sender's clock, whose reply was lost.
[[nodiscard]] bool may_be_lost(const OpenUpload& upload, const std::string& key, WallTime asked);

}  // namespace ckptfs
