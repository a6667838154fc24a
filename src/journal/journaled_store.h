// SPDX-License-Identifier: Apache-2.0
// A store that notes in a journal when uploads begin, from before they are requested, and end; and the same of objects
// below .ckptfs/ that a mount has to remove: hidden files, and the records of renames.
//
// Ownership: store, journal, `lost` and `aborts` outlive it, and the last three every callback. Threads: as in
// ObjectStore.
#pragma once

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/forwarding_store.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/object_store.h"
#include "journal/lost_uploads.h"
#include "journal/mount_journal.h"
#include "journal/upload_aborts.h"

namespace ckptfs {

class JournaledStore final : public ForwardingStore {
public:
    // `prefix`: of the mount's keys. `is_behind_disk`: a disk has acknowledged what is sent, so that an upload that is
    // left over means no failed file, and hidden objects are noted when they are acknowledged
    // (WritebackEnvironment::note_hidden).
    JournaledStore(ObjectStore& store, MountJournal& journal, LostUploads& lost, UploadAborts& aborts,
                   const std::string& prefix, bool is_behind_disk = false)
        : ForwardingStore(store),
          journal_(journal),
          lost_(lost),
          aborts_(aborts),
          records_(prefix + std::string(kRenamesPrefix)),
          hidden_(prefix + std::string(kTemporaryPrefix)),
          is_behind_disk_(is_behind_disk) {}

    void create_upload(CreateUploadRequest request, StoreDone<UploadId> done) override {
        const UploadedFile file = is_behind_disk_ ? UploadedFile::kSafe : UploadedFile::kUnfinished;
        lost_.create_upload(std::move(request), file, std::move(done));
    }
    void complete_upload(CompleteRequest request, StoreDone<PutResponse> done) override {
        const UploadId upload = request.upload;
        note_begun(upload.key);
        behind().complete_upload(std::move(request), ending(upload, std::move(done)));
    }
    void abort_upload(UploadId upload, StoreDone<void> done) override { aborts_.abort(upload, std::move(done)); }
    void get(GetRequest request, StoreDone<GetResponse> done) override {
        if (!is_noted(request.key)) {
            behind().get(std::move(request), std::move(done));
            return;
        }
        std::string key = request.key;
        behind().get(std::move(request), [this, key = std::move(key), done = std::move(done)](Result<GetResponse> got) {
            if (!got && got.error().errno_value == ENOENT) {
                journal_.object_ended(key);
            }
            done(std::move(got));
        });
    }
    void put(PutRequest request, StoreDone<PutResponse> done) override {
        const bool is_new = note_begun(request.key);
        std::string key = request.key;
        behind().put(std::move(request), saving({key, ""}, [&journal = journal_, is_new, key,
                                                            done = std::move(done)](Result<PutResponse> written) {
                         // The object that is there is another mount's, which may be alive.
                         if (is_new && !written && is_refused(written.error())) {
                             journal.object_ended(key);
                         }
                         done(std::move(written));
                     }));
    }
    void remove(RemoveRequest request, StoreDone<void> done) override {
        if (!is_noted(request.key)) {
            behind().remove(std::move(request), std::move(done));
            return;
        }
        behind().remove(request, [this, key = request.key, done = std::move(done)](Status removed) {
            if (removed) {
                journal_.object_ended(key);
            }
            done(std::move(removed));
        });
    }
    void remove_many(std::vector<RemoveRequest> requests, StoreDone<std::vector<DeleteFailure>> done) override {
        std::vector<std::string> noted;
        for (const RemoveRequest& request : requests) {
            if (is_noted(request.key)) {
                noted.push_back(request.key);
            }
        }
        if (noted.empty()) {
            behind().remove_many(std::move(requests), std::move(done));
            return;
        }
        behind().remove_many(std::move(requests), [this, noted = std::move(noted), done = std::move(done)](
                                                      Result<std::vector<DeleteFailure>> failures) {
            if (failures && failures->empty()) {
                for (const std::string& key : noted) {
                    journal_.object_ended(key);
                }
            }
            done(std::move(failures));
        });
    }
    void upload_part(UploadPartRequest request, StoreDone<UploadedPart> done) override {
        UploadId upload = request.upload;
        behind().upload_part(std::move(request), unless_gone(std::move(upload), std::move(done)));
    }
    void upload_part_copy(UploadPartCopyRequest request, StoreDone<UploadedPart> done) override {
        UploadId upload = request.upload;
        behind().upload_part_copy(std::move(request), unless_gone(std::move(upload), std::move(done)));
    }
    // Leaves out uploads whose abort has failed: no file comes of them.
    void list_uploads(std::string prefix, StoreDone<std::vector<OpenUpload>> done) override {
        behind().list_uploads(
            std::move(prefix), [this, done = std::move(done)](Result<std::vector<OpenUpload>> uploads) {
                if (uploads) {
                    std::erase_if(*uploads, [this](auto& each) { return aborts_.is_left(each.upload); });
                    for (OpenUpload& each : *uploads) {
                        each.is_own = journal_.is_open(each.upload);
                    }
                }
                done(std::move(uploads));
            });
    }

private:
    [[nodiscard]] bool is_noted(const std::string& key) const {
        return key.starts_with(records_) || (key.starts_with(hidden_) && !is_behind_disk_);
    }

    // Notes an object before it is sent, as it may take effect even if this process dies before the reply. Whether it
    // was not noted yet.
    bool note_begun(const std::string& key) { return is_noted(key) && journal_.object_begun(key); }
    // A condition did not hold, and no attempt took effect.
    [[nodiscard]] static bool is_refused(const Error& error) {
        return !error.outcome_unknown &&
               (error.errno_value == ESTALE || error.errno_value == EEXIST || error.errno_value == ENOENT);
    }
    // Only success ends the upload in the journal: after a failure it may still be there.
    StoreDone<PutResponse> ending(const UploadId& upload, StoreDone<PutResponse> done) {
        return saving(upload, [&journal = journal_, upload, done = std::move(done)](Result<PutResponse> saved) {
            if (saved) {
                journal.ended(upload);
            }
            done(std::move(saved));
        });
    }
    // Once the file is saved, no upload of this key that was begun before, was given up, or whose reply was lost, means
    // a failure of the file any more. An upload that is given up may not be known as such yet: it ends once the failure
    // is recorded. One that was begun later is of a later version. Behind a disk, what is saved may have been
    // acknowledged long before: it says nothing of a file that was being written when the mount was killed.
    StoreDone<PutResponse> saving(const UploadId& upload, StoreDone<PutResponse> done) {
        return [&lost = lost_, &aborts = aborts_, &journal = journal_, key = upload.key, is_new = !is_behind_disk_,
                before = journal_.begun_before(upload), done = std::move(done)](Result<PutResponse> saved) {
            if (saved) {
                for (const UploadId& each : before) {
                    journal.made_good(each);
                }
                aborts.saved(key);
                if (is_new) {
                    lost.saved(key);
                }
            }
            done(std::move(saved));
        };
    }

    // An upload that others have ended is not left over.
    StoreDone<UploadedPart> unless_gone(UploadId upload, StoreDone<UploadedPart> done) {
        return [&journal = journal_, upload = std::move(upload), done = std::move(done)](Result<UploadedPart> part) {
            if (!part && is_upload_gone(part.error())) {
                journal.ended(upload);
            }
            done(std::move(part));
        };
    }

    MountJournal& journal_;
    LostUploads& lost_;
    UploadAborts& aborts_;
    const std::string records_;
    const std::string hidden_;
    const bool is_behind_disk_;
};

}  // namespace ckptfs
