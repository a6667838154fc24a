// SPDX-License-Identifier: Apache-2.0
// Whether a commit marker may appear: asks the bucket and this mount what failed, or is still being written, below its
// directory.
//
// An ordinary commit costs three round trips: lists of the open multipart uploads, to the files' own keys and to hidden
// ones; then of hidden objects, which a file written out of order leaves between its hidden upload and its own; then of
// the records, which a failing file leaves before any of these is ended. Only keys in these lists are checked further.
// What other mounts have acknowledged by their disks before (unsent_elsewhere.h) is waited for; where a disk
// acknowledges here, too, that is left to check_again(), right before the marker is sent.
//
// A store that cannot list uploads, or denies this user the list, is not asked again. An upload without parts may be
// one whose reply another mount has lost, and which is about to end: it is waited for, for some seconds.
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

#include "fs/commit_policy.h"
#include "fs/first_seen.h"
#include "fs/object_copy.h"
#include "fs/shared_state.h"
#include "fs/unsent_elsewhere.h"

namespace ckptfs::fs {

// Whether what the gate has allowed may still be sent, by both clocks: the steady one stands still while the machine is
// hibernated. From any thread. Empty for what is no marker.
using StillCounts = std::function<bool()>;

class CommitGate {
public:
    explicit CommitGate(SharedState& state) : state_(state) {}

    [[nodiscard]] bool is_marker(const std::string& key) const {
        return is_commit_marker(key, state_.env.write.config);
    }
    // How long its answer is valid: after that others may have begun to write below the directory again.
    static constexpr Milliseconds kAllowedFor{60'000};
    // Success, or EIO with what stands in the way, where, and what to do.
    void check(std::string marker_key, Reply<StillCounts> reply);
    // For a marker that a disk is to acknowledge: what AskedBy::awaited is then.
    void announced_by_others(const std::string& marker_key, const std::string& disk,
                             const Reply<std::vector<std::uint64_t>>& reply);
    // A marker that a disk has acknowledged, before it is sent: a failure is retryable where that may change.
    void check_again(const std::string& marker_key, const AskedBy& by, Reply<void> reply);
    // Before a directory gets another name: once nothing in it is unsent, here and elsewhere. Blocks.
    Status wait_for_unsent(const std::string& directory);
    // The same for markers below `directory`, which is listed once. Blocks.
    Result<StillCounts> allow(const std::string& directory, const std::vector<std::string>& markers);
    // For a rename or a link. To a marker's name `options.may_go_on` is what still counts. Blocks.
    Result<Copied> copy(const std::string& source, const std::string& destination, CopyOptions options);
    // `send` makes the object, and sends only while its argument counts. Where that no longer did and nothing was made,
    // the marker is allowed once more, and it is called again. Blocks.
    template <class T>
    Result<T> publish(const std::string& key, StillCounts counts, const std::function<Result<T>(StillCounts)>& send);
    // Before a directory gets another name: for each marker among the objects below it. Blocks.
    Status check_tree(const std::string& directory, const std::vector<ObjectInfo>& objects);
    // What failed below `directory`, on any mount, and was not made good; what this mount knew of and was is forgotten.
    // Blocks.
    Result<std::vector<FailedRecord>> failures_below(const std::string& directory);
    // The directory is renamed: they go with it, and what failed before under their new names is forgotten. Blocks
    // until the bucket says so, or the wait was long.
    void move_failures(const std::vector<FailedRecord>& failures, const std::string& from, const std::string& to);

private:
    struct Evidence {
        std::vector<FailedRecord> failed;
        // Of other mounts, by what the file is to become.
        std::vector<OpenUpload> unfinished;
        std::vector<UnsentDirectory> unsent;
    };
    // Of a mount whose bucket acknowledges, for what others have acknowledged by their disks.
    struct Wait {
        SteadyTime begun{};
        // What they had announced by then; absent before the first look.
        std::optional<std::vector<std::uint64_t>> awaited;
    };
    // The upload that a marker is refused for; it may be one by which a disk sends what was announced later.
    struct InTheWay {
        std::optional<UploadId> upload;
        bool may_be_sent = false;
    };
    // What the bucket holds under each key.
    using States = std::map<std::string, std::optional<ObjectInfo>>;

    // The marker whose directory holds the key, directly or below; null if there is none.
    [[nodiscard]] static const std::string* marker_over(const std::string& key,
                                                        const std::vector<std::string>& markers);
    // Without a disk where none acknowledges.
    [[nodiscard]] AskedBy asked_here() const {
        return {state_.env.acknowledging == nullptr ? "" : state_.env.acknowledging->id};
    }
    // To be called before the bucket is asked.
    [[nodiscard]] StillCounts counts_from_now() const;
    Status check_markers(const std::string& directory, const std::vector<std::string>& markers, Wait& wait);
    Status check_once(const std::string& directory, const std::vector<std::string>& markers, Wait& wait,
                      InTheWay& in_the_way);
    [[nodiscard]] bool may_be_lost(const UploadId& upload) const;
    [[nodiscard]] std::set<std::string> being_written() const;
    Result<Evidence> gather(const std::string& directory);
    // Once what `wait` is for is in the bucket; `what` is refused else.
    Result<Evidence> gather_once_sent(const std::string& directory, const std::string& what, Wait& wait);
    // From the bucket and from this mount's memory.
    Result<std::vector<FailedRecord>> records(const std::string& directory);
    // None from a store that cannot tell.
    [[nodiscard]] std::future<Result<std::vector<OpenUpload>>> ask_for_uploads(const std::string& prefix);
    Result<std::vector<OpenUpload>> told(Result<std::vector<OpenUpload>> uploads);
    // `own`: what this mount was writing when they were asked for.
    [[nodiscard]] std::vector<OpenUpload> of_others(std::vector<OpenUpload> uploads, std::set<std::string> own) const;
    // Adds the file that other mounts write under this hidden key, if it is one.
    void add_hidden(Evidence& evidence, const std::string& hidden, WallTime begun) const;
    Result<States> look(const std::set<std::string>& keys);
    [[nodiscard]] static NameState state_of(const std::string& key, const std::string& directory, const States& states);
    Status check_evidence_again(const std::string& directory, const std::string& marker_key, WallTime acknowledged);
    // What was begun after `acknowledged` does not count.
    Status check_failed(const std::string& directory, const std::vector<std::string>& markers,
                        std::vector<FailedRecord> failed, WallTime acknowledged);
    Status check_unfinished(const std::vector<std::string>& markers, std::vector<OpenUpload> unfinished,
                            std::optional<UploadId>& in_the_way);
    Status check_record(const FailedRecord& record, const NameState& state, const std::string& marker_key);
    // Those of other mounts, with what their objects say of host, reason and version; without those that are gone.
    Status read_all(std::vector<FailedRecord>& records);
    // Takes its key where it is gone.
    void read(FailedRecord& record, std::function<void(Status)> done);
    // A record that no longer stands for a failure.
    void discard(const FailedRecord& record);

    SharedState& state_;
    UnsentElsewhere unsent_{state_};
    FirstSeen first_seen_;
    // Once the store has refused to list uploads; 0 before.
    std::atomic<SteadyTime::rep> asks_for_uploads_at_ = 0;
};

}  // namespace ckptfs::fs
