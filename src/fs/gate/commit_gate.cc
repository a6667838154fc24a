// SPDX-License-Identifier: Apache-2.0
#include "fs/gate/commit_gate.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/store_wait.h"
#include "base/text.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"
#include "ckptfs/store_limits.h"
#include "fs/objects/directory_marker.h"
#include "fs/objects/tree_copy.h"
#include "staged/hidden_key.h"
#include "write/publish_permits.h"

namespace ckptfs::fs {

namespace {

constexpr std::size_t kRequestsAtOnce = 16;
// The mount that has lost the upload's reply ends it within a few seconds.
constexpr int kLooksAtLostUploads = 10;
constexpr Milliseconds kBetweenLooks{1'000};
// The list of uploads is asked for again after a refusal: rights change, and a refusal may be a slip of the store's.
constexpr std::chrono::minutes kAskForUploadsAgain{10};
// The gate asks at most this often: an answer that has expired when it comes is of no use, and the store responds again
// by then.
constexpr int kMostAsked = 3;

}  // namespace

const std::string* CommitGate::marker_over(const std::string& key, const std::vector<std::string>& markers) {
    const auto found = std::find_if(markers.begin(), markers.end(),
                                    [&](const std::string& marker) { return key.starts_with(directory_of(marker)); });
    return found == markers.end() ? nullptr : &*found;
}

void CommitGate::check(std::string marker_key, Reply<StillCounts> reply) {
    state_.env.gate().post([this, marker_key = std::move(marker_key), reply = std::move(reply)] {
        reply(allow(directory_of(marker_key), {marker_key}));
    });
}

void CommitGate::announced_by_others(const std::string& marker_key, const std::string& disk,
                                     const Reply<std::vector<std::uint64_t>>& reply) {
    // A refusal may pass, as where a permit is renewed: the marker would wait for nothing then.
    unsent_.collect(directory_of(marker_key), {disk}, [reply](const Result<std::vector<UnsentDirectory>>& unsent) {
        reply(unsent.map([](const std::vector<UnsentDirectory>& each) { return digests_of(each); }));
    });
}

void CommitGate::check_again(const std::string& marker_key, const AskedBy& by, Reply<void> reply) {
    const DiskAcknowledgement* const own = state_.env.acknowledging;
    Executor& blocking = own == nullptr ? state_.env.gate() : own->blocking;
    blocking.post([this, marker_key, by, reply = std::move(reply)] {
        const std::string directory = directory_of(marker_key);
        Status allowed = unsent_.look(directory, by, marker_key);
        reply(allowed ? check_evidence_again(directory, marker_key, by.acknowledged) : std::move(allowed));
    });
}

// To be called after unsent_.look(): a failure is recorded before the announcement is withdrawn.
Status CommitGate::check_evidence_again(const std::string& directory, const std::string& marker_key,
                                        WallTime acknowledged) {
    Result<Evidence> evidence = gather(directory);
    if (!evidence) {
        return ask_again(evidence.error());
    }
    if (Status allowed = check_failed(directory, {marker_key}, std::move(evidence->failed), acknowledged); !allowed) {
        return allowed;
    }
    std::erase_if(evidence->unfinished,
                  [&](const OpenUpload& upload) { return upload.initiated > acknowledged + kTimesDifferBy; });
    std::optional<UploadId> in_the_way;
    const Status allowed = check_unfinished({marker_key}, std::move(evidence->unfinished), in_the_way);
    // The upload ends, or does not count any more after a while.
    return allowed ? Status() : Status(ask_again(allowed.error()));
}

Status CommitGate::wait_for_unsent(const std::string& directory) {
    const DiskAcknowledgement* const own = state_.env.acknowledging;
    if (own == nullptr) {
        return unsent_.wait(directory, {}, directory, state_.env.clock.now());
    }
    if (Status sent = wait_for<void>([&](auto done) { own->when_sent(done); }); !sent) {
        return sent;
    }
    return unsent_.wait(directory, {own->id}, directory, state_.env.clock.now());
}

Result<StillCounts> CommitGate::allow(const std::string& directory, const std::vector<std::string>& markers) {
    Wait wait{state_.env.clock.now(), {}};
    for (int asked = 1;; ++asked) {
        StillCounts counts = counts_from_now();
        if (const Status allowed = check_markers(directory, markers, wait); !allowed) {
            return failure(allowed.error());
        }
        // False if the gate's own requests have waited for the end of an outage.
        if (counts() || asked == kMostAsked) {
            return counts;
        }
    }
}

StillCounts CommitGate::counts_from_now() const {
    const Clock& clock = state_.env.clock;
    return [&clock, steady = clock.now(), wall = clock.wall_now()] {
        return clock.now() - steady <= kAllowedFor && clock.wall_now() - wall <= kAllowedFor;
    };
}

Result<Copied> CommitGate::copy(const std::string& source, const std::string& destination, CopyOptions options) {
    CopyMark mark;
    options.mark = &mark;
    return publish<Copied>(destination, options.may_go_on, [&](StillCounts counts) {
        options.may_go_on = std::move(counts);
        return copy_object(state_.env.store, source, destination, options);
    });
}

template <class T>
Result<T> CommitGate::publish(const std::string& key, StillCounts counts,
                              const std::function<Result<T>(StillCounts)>& send) {
    PermitRenewals renewals = state_.env.write.permits.renewals();
    for (;;) {
        Result<T> made = send(counts);
        if (made || !counts || counts()) {
            return made;
        }
        if (!renewals.one_more()) {
            return failure(told_as_late(std::move(made.error()), key));
        }
        Result<StillCounts> allowed = allow(directory_of(key), {key});
        if (!allowed) {
            return failure(std::move(allowed.error()));
        }
        counts = std::move(*allowed);
    }
}

template Result<PutResponse> CommitGate::publish(const std::string&, StillCounts,
                                                 const std::function<Result<PutResponse>(StillCounts)>&);

Status CommitGate::check_tree(const std::string& directory, const std::vector<ObjectInfo>& objects) {
    std::vector<std::string> markers;
    for (const ObjectInfo& object : objects) {
        if (is_marker(object.key)) {
            markers.push_back(object.key);
        }
    }
    Wait wait{state_.env.clock.now(), {}};
    return markers.empty() ? Status() : check_markers(directory, markers, wait);
}

Status CommitGate::check_markers(const std::string& directory, const std::vector<std::string>& markers, Wait& wait) {
    for (int looks_left = kLooksAtLostUploads;;) {
        InTheWay in_the_way;
        Status allowed = check_once(directory, markers, wait, in_the_way);
        const bool is_worth_a_look =
            in_the_way.upload &&
            (in_the_way.may_be_sent ? state_.env.clock.now() - wait.begun < state_.env.write.retry_for
                                    : looks_left-- > 0 && may_be_lost(*in_the_way.upload));
        if (!is_worth_a_look) {
            return allowed;
        }
        std::this_thread::sleep_for(kBetweenLooks);
    }
}

bool CommitGate::may_be_lost(const UploadId& upload) const {
    const auto parts =
        wait_for<std::vector<UploadedPart>>([&](auto done) { state_.env.store.list_parts(upload, done); });
    return parts ? parts->empty() : is_upload_gone(parts.error());
}

// Does not wait for what was announced after the first look: that could go on for ever.
Result<CommitGate::Evidence> CommitGate::gather_once_sent(const std::string& directory, const std::string& what,
                                                          Wait& wait) {
    for (;;) {
        Result<Evidence> evidence = gather(directory);
        if (!evidence || state_.env.acknowledging != nullptr) {
            return evidence;
        }
        if (!wait.awaited) {
            wait.awaited = digests_of(evidence->unsent);
        }
        const AskedBy by{"", WallTime::max(), wait.awaited};
        if (std::none_of(evidence->unsent.begin(), evidence->unsent.end(),
                         [&by](const UnsentDirectory& each) { return is_awaited(each.object, by); })) {
            return evidence;
        }
        if (const Status arrived = unsent_.wait(directory, by, what, wait.begun); !arrived) {
            return failure(arrived.error());
        }
    }
}

Status CommitGate::check_once(const std::string& directory, const std::vector<std::string>& markers, Wait& wait,
                              InTheWay& in_the_way) {
    Result<Evidence> evidence = gather_once_sent(directory, markers.front(), wait);
    if (!evidence) {
        return failure(evidence.error());
    }
    if (Status allowed = check_failed(directory, markers, std::move(evidence->failed), WallTime::max()); !allowed) {
        return allowed;
    }
    // A disk sends what it has acknowledged by uploads, too.
    std::vector<OpenUpload>& unfinished = evidence->unfinished;
    const auto sent =
        std::stable_partition(unfinished.begin(), unfinished.end(), [&evidence](const OpenUpload& upload) {
            return std::none_of(
                evidence->unsent.begin(), evidence->unsent.end(),
                [&upload](const UnsentDirectory& each) { return directory_of(upload.upload.key) == each.directory; });
        });
    Status allowed = check_unfinished(markers, {unfinished.begin(), sent}, in_the_way.upload);
    if (!allowed || state_.env.acknowledging != nullptr) {
        // check_again() asks for the others once nothing is unsent.
        return allowed;
    }
    in_the_way.may_be_sent = true;
    return check_unfinished(markers, {sent, unfinished.end()}, in_the_way.upload);
}

Status CommitGate::check_unfinished(const std::vector<std::string>& markers, std::vector<OpenUpload> unfinished,
                                    std::optional<UploadId>& in_the_way) {
    const WallTime now = state_.env.clock.wall_now();
    const Milliseconds ttl = state_.env.write.config.failed_sibling_ttl;
    std::erase_if(unfinished, [&](const auto& upload) { return marker_over(upload.upload.key, markers) == nullptr; });
    std::set<std::string> keys;
    for (const OpenUpload& upload : unfinished) {
        keys.insert(upload.upload.key);
    }
    const Result<States> states = look(keys);
    if (!states) {
        return failure(states.error());
    }
    for (OpenUpload& upload : unfinished) {
        const std::string& key = upload.upload.key;
        if (upload.initiated == WallTime{}) {
            upload.initiated = first_seen_.of(upload, now);
        }
        if (is_in_the_making(upload, states->at(key), now, ttl)) {
            if (!upload.upload.id.empty()) {
                in_the_way = upload.upload;
            }
            return failure(EIO, format("{} is not committed: {} is being written by another mount, or was left by one "
                                       "that ended; wait for it, or write that file again, then commit again; an "
                                       "upload older than {} does not count",
                                       *marker_over(key, markers), key, in_minutes(ttl)));
        }
    }
    return {};
}

// Asks in the order in which a failing file leaves these states: one that has left a state by the time of its list
// shows in a later list.
Result<CommitGate::Evidence> CommitGate::gather(const std::string& directory) {
    std::set<std::string> own = being_written();
    const std::string hidden = hidden_prefix(state_.env.prefix, directory);
    auto unsent_answer = unsent_.ask(directory, asked_here());
    auto uploads_answer = ask_for_uploads(directory);
    auto hidden_answer = ask_for_uploads(hidden);
    Result<std::vector<OpenUpload>> uploads = told(uploads_answer.get());
    Result<std::vector<OpenUpload>> hidden_uploads = told(hidden_answer.get());
    Result<std::vector<UnsentDirectory>> unsent = unsent_answer.get();
    if (!uploads || !hidden_uploads || !unsent) {
        return failure(!uploads ? uploads.error() : !hidden_uploads ? hidden_uploads.error() : unsent.error());
    }
    Evidence evidence{{}, of_others(std::move(*uploads), std::move(own)), std::move(*unsent)};
    // A hidden upload that was completed is a hidden object until the file has its name.
    const Result<std::vector<ObjectInfo>> hidden_objects = list_all(state_.env.store, hidden);
    if (!hidden_objects) {
        return failure(hidden_objects.error());
    }
    // A failed file has its record before anything else of it is ended or removed.
    Result<std::vector<FailedRecord>> failed = records(directory);
    if (!failed) {
        return failure(failed.error());
    }
    evidence.failed = std::move(*failed);
    for (const OpenUpload& upload : *hidden_uploads) {
        // Each upload has a time of its own: the next one of the same file has another hidden key.
        const bool is_told = upload.initiated != WallTime{};
        add_hidden(evidence, upload.upload.key,
                   is_told ? upload.initiated : first_seen_.of(upload, state_.env.clock.wall_now()));
    }
    for (const ObjectInfo& object : *hidden_objects) {
        add_hidden(evidence, object.key, object.last_modified);
    }
    return evidence;
}

std::set<std::string> CommitGate::being_written() const {
    std::set<std::string> keys;
    const NodeTable::Lock lock = state_.nodes.lock();
    for (const NodePtr& node : state_.nodes.with_writers(lock)) {
        // A saved file may stay open for as long as a child process lives: an upload of its key is another mount's. A
        // failed file has its record, and one that is open and unwritten has no upload.
        if (node->writer->dirty() && !node->writer->pristine() && !node->writer->failed()) {
            keys.insert(node->writer->key());
        }
    }
    return keys;
}

std::future<Result<std::vector<OpenUpload>>> CommitGate::ask_for_uploads(const std::string& prefix) {
    return ask<std::vector<OpenUpload>>([&](auto done) {
        if (SteadyTime(SteadyTime::duration(asks_for_uploads_at_)) > state_.env.clock.now()) {
            done(std::vector<OpenUpload>());
        } else {
            state_.env.store.list_uploads(prefix, [this, done](Result<std::vector<OpenUpload>> uploads) {
                has_listed_uploads_ = has_listed_uploads_ || uploads;
                done(std::move(uploads));
            });
        }
    });
}

Result<std::vector<OpenUpload>> CommitGate::told(Result<std::vector<OpenUpload>> uploads) {
    // Where the store has listed them before, the permission may come back at any moment: the markers wait for that.
    if (!uploads && is_refused_by_store(uploads.error()) && !has_listed_uploads_) {
        const SteadyTime again = state_.env.clock.now() + kAskForUploadsAgain;
        if (asks_for_uploads_at_.exchange(again.time_since_epoch().count()) == 0) {
            log_warning(escaped("files that other mounts are still writing do not hold a commit back: " +
                                uploads.error().message));
        }
        return std::vector<OpenUpload>();
    }
    return uploads;
}

std::vector<OpenUpload> CommitGate::of_others(std::vector<OpenUpload> uploads, std::set<std::string> own) const {
    // Keys that were being written before and after the list was made. What was saved in between is in the bucket by
    // now.
    own.merge(being_written());
    const std::string control = state_.env.prefix + std::string(kControlDirectory) + "/";
    std::erase_if(uploads, [&](const OpenUpload& upload) {
        const std::string& key = upload.upload.key;
        // `is_own`: the upload of a copy, by a rename or link(2), and that of a failed file, which is being ended, have
        // no writer here.
        return upload.is_own || own.contains(key) || key.starts_with(control) ||
               may_be_missing(key, state_.env.write.config);
    });
    return uploads;
}

void CommitGate::add_hidden(Evidence& evidence, const std::string& hidden, WallTime begun) const {
    const std::optional<HiddenFile> file = parse_hidden_key(state_.env.prefix, hidden);
    if (file && file->mount_id != state_.mount_id && !may_be_missing(file->key, state_.env.write.config)) {
        evidence.unfinished.push_back(OpenUpload{UploadId{file->key, ""}, begun});
    }
}

Result<CommitGate::States> CommitGate::look(const std::set<std::string>& keys) {
    const std::vector<std::string> list(keys.begin(), keys.end());
    std::vector<std::optional<ObjectInfo>> found(list.size());
    const Status asked =
        for_each_in_parallel(list.size(), kRequestsAtOnce, [&](std::size_t index, std::function<void(Status)> done) {
            state_.env.store.head(list[index], [&, this, index, done = std::move(done)](Result<ObjectInfo> object) {
                if (object) {
                    // The bucket's ETag, as in records, which are for other mounts.
                    object->etag = state_.env.etag_there(list[index], object->etag);
                    found[index] = std::move(*object);
                } else if (object.error().errno_value != ENOENT) {
                    done(failure(object.error()));
                    return;
                }
                done({});
            });
        });
    if (!asked) {
        return failure(asked.error());
    }
    States states;
    for (std::size_t i = 0; i < list.size(); ++i) {
        states.emplace(list[i], std::move(found[i]));
    }
    return states;
}

NameState CommitGate::state_of(const std::string& key, const std::string& directory, const States& states) {
    NameState state;
    state.object = states.at(key);
    for (const std::string& above : directories_above(key, directory)) {
        if (const auto found = states.find(above); found != states.end() && found->second) {
            state.directory_made = std::max(state.directory_made, directory_made(*found->second));
        }
    }
    return state;
}

}  // namespace ckptfs::fs
