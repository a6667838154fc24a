// SPDX-License-Identifier: Apache-2.0
// Decides whether a commit marker may appear: asks the bucket and this mount what failed, or is still being written,
// below its directory.
//
// An ordinary commit costs three round trips: first lists of the open multipart uploads, to the files' own keys and to
// hidden ones; then a list of hidden objects, which a file written out of order leaves between its hidden upload and
// its own; then a list of the records, which a failing file leaves before any of these is ended. Only keys in these
// lists are checked further. What other mounts' disks have acknowledged before (unsent_elsewhere.h) is waited for; if a
// disk acknowledges on this mount, too, check_again() does that, right before the marker is sent.
//
// A store that cannot list uploads, or denies this user the list, is asked again only after ten minutes. An upload
// without parts may be one whose CreateMultipartUpload reply another mount has lost, and which that mount is about to
// abort: the gate waits some seconds for its end.
//
// commit_gate_failures.cc has what is about failed files, commit_gate.cc the rest.
// Threads: all functions may be called from any thread. check() waits on the blocking executor.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fs/failures/commit_policy.h"
#include "fs/gate/first_seen.h"
#include "fs/gate/unsent_elsewhere.h"
#include "fs/objects/object_copy.h"
#include "fs/state/shared_state.h"

namespace ckptfs::fs {

// True while what the gate has allowed may still be sent. Goes by both clocks, because the steady one stands still
// while the machine is hibernated. Called from any thread. Empty for a key that is no marker.
using StillCounts = std::function<bool()>;

class CommitGate {
public:
    explicit CommitGate(SharedState& state) : state_(state) {}

    [[nodiscard]] bool is_marker(const std::string& key) const {
        return is_commit_marker(key, state_.env.write.config);
    }
    // How long the answer of the gate is valid: after that others may have begun to write below the directory again.
    static constexpr Milliseconds kAllowedFor{60'000};
    // Success, or EIO with what stands in the way, where, and what to do.
    void check(std::string marker_key, Reply<StillCounts> reply);
    // Replies with AskedBy::awaited for a marker that `disk` is about to acknowledge.
    void announced_by_others(const std::string& marker_key, const std::string& disk,
                             const Reply<std::vector<std::uint64_t>>& reply);
    // Checks a marker that a disk has acknowledged, before it is sent. A failure is retryable if the answer may change.
    void check_again(const std::string& marker_key, const AskedBy& by, Reply<void> reply);
    // Waits until nothing below `directory` is unsent, here and on other mounts, so that it may be renamed. Blocks.
    Status wait_for_unsent(const std::string& directory);
    // Like check(), for several markers below `directory`, which is listed once. Blocks.
    Result<StillCounts> allow(const std::string& directory, const std::vector<std::string>& markers);
    // Copies an object for a rename or a link. If `destination` is a marker, `options.may_go_on` is its StillCounts.
    // Blocks.
    Result<Copied> copy(const std::string& source, const std::string& destination, CopyOptions options);
    // Makes the object under `key` by `send`, which sends only while its argument returns true. If that has turned
    // false and nothing was made, the gate is asked again and `send` called again. Blocks.
    template <class T>
    Result<T> publish(const std::string& key, StillCounts counts, const std::function<Result<T>(StillCounts)>& send);
    // Checks every marker among the objects below `directory`, before that is renamed. Blocks.
    Status check_tree(const std::string& directory, const std::vector<ObjectInfo>& objects);
    // Returns the failures below `directory`, of any mount, that are unresolved; forgets those of this mount that are
    // resolved or expired. Blocks.
    Result<std::vector<FailedRecord>> failures_below(const std::string& directory);
    // Moves the failures along with a directory that is renamed; earlier failures under their new names are forgotten.
    // Blocks until the records are in the bucket, or the wait was long.
    void move_failures(const std::vector<FailedRecord>& failures, const std::string& from, const std::string& to);

private:
    struct Evidence {
        std::vector<FailedRecord> failed;
        // Uploads of other mounts, under the key that the file is to have.
        std::vector<OpenUpload> unfinished;
        std::vector<UnsentDirectory> unsent;
    };
    // The wait of a mount without --ack disk for what other mounts' disks have acknowledged.
    struct Wait {
        SteadyTime begun{};
        // What they had announced at the first look; absent before that.
        std::optional<std::vector<std::uint64_t>> awaited;
    };
    // The upload that a marker is refused for. `may_be_sent`: a disk may be sending by it what was announced later.
    struct InTheWay {
        std::optional<UploadId> upload;
        bool may_be_sent = false;
    };
    // What the bucket holds under each key.
    using States = std::map<std::string, std::optional<ObjectInfo>>;

    // The marker whose directory holds the key, directly or below; null if there is none.
    [[nodiscard]] static const std::string* marker_over(const std::string& key,
                                                        const std::vector<std::string>& markers);
    // Describes this mount; without a disk if none acknowledges.
    [[nodiscard]] AskedBy asked_here() const {
        return {state_.env.acknowledging == nullptr ? "" : state_.env.acknowledging->id};
    }
    // Counts for kAllowedFor from now on; to be called before the bucket is asked.
    [[nodiscard]] StillCounts counts_from_now() const;
    Status check_markers(const std::string& directory, const std::vector<std::string>& markers, Wait& wait);
    Status check_once(const std::string& directory, const std::vector<std::string>& markers, Wait& wait,
                      InTheWay& in_the_way);
    [[nodiscard]] bool may_be_lost(const UploadId& upload) const;
    [[nodiscard]] std::set<std::string> being_written() const;
    Result<Evidence> gather(const std::string& directory);
    // gather(), once what `wait` is for is in the bucket; otherwise an error that refuses `what`.
    Result<Evidence> gather_once_sent(const std::string& directory, const std::string& what, Wait& wait);
    // Failures below `directory`, from the records in the bucket and from this mount's memory.
    Result<std::vector<FailedRecord>> records(const std::string& directory);
    // Requests the open uploads below `prefix`; none from a store that cannot list them.
    [[nodiscard]] std::future<Result<std::vector<OpenUpload>>> ask_for_uploads(const std::string& prefix);
    // Treats a list that the store refuses as empty, and notes not to ask again for kAskForUploadsAgain.
    Result<std::vector<OpenUpload>> told(Result<std::vector<OpenUpload>> uploads);
    // Keeps the uploads of other mounts. `own`: keys that this mount was writing when the list was requested.
    [[nodiscard]] std::vector<OpenUpload> of_others(std::vector<OpenUpload> uploads, std::set<std::string> own) const;
    // Adds the file that another mount writes under this hidden key, if the key is one.
    void add_hidden(Evidence& evidence, const std::string& hidden, WallTime begun) const;
    Result<States> look(const std::set<std::string>& keys);
    [[nodiscard]] static NameState state_of(const std::string& key, const std::string& directory, const States& states);
    Status check_evidence_again(const std::string& directory, const std::string& marker_key, WallTime acknowledged);
    // Files that were begun after `acknowledged` do not count.
    Status check_failed(const std::string& directory, const std::vector<std::string>& markers,
                        std::vector<FailedRecord> failed, WallTime acknowledged);
    Status check_unfinished(const std::vector<std::string>& markers, std::vector<OpenUpload> unfinished,
                            std::optional<UploadId>& in_the_way);
    Status check_record(const FailedRecord& record, const NameState& state, const std::string& marker_key);
    // Reads host, reason and version of other mounts' records from their objects; drops records that are gone.
    Status read_all(std::vector<FailedRecord>& records);
    // Clears the key of a record that is gone.
    void read(FailedRecord& record, std::function<void(Status)> done);
    // Removes a record that no longer stands for a failure.
    void discard(const FailedRecord& record);

    SharedState& state_;
    UnsentElsewhere unsent_{state_};
    FirstSeen first_seen_;
    // Once the store has refused to list uploads; 0 before.
    std::atomic<SteadyTime::rep> asks_for_uploads_at_ = 0;
    std::atomic<bool> has_listed_uploads_ = false;
};

}  // namespace ckptfs::fs
