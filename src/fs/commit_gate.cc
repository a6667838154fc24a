// SPDX-License-Identifier: Apache-2.0
#include "fs/commit_gate.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/store_wait.h"
#include "base/text.h"
#include "ckptfs/format.h"
#include "ckptfs/log.h"
#include "fs/directory_marker.h"
#include "fs/tree_copy.h"
#include "staged/hidden_key.h"
#include "write/publish_permits.h"

namespace ckptfs::fs {

namespace {

constexpr std::size_t kRequestsAtOnce = 16;
// Its mount ends it within a few seconds.
constexpr int kLooksAtLostUploads = 10;
constexpr Milliseconds kBetweenLooks{1'000};
// An answer that has expired when it is given is of no use; the store responds again by then.
constexpr int kMostAsked = 3;
// Ours are a few lines.
constexpr std::uint64_t kMaxRecordBytes = 4096;

std::string minutes(Milliseconds time) {
    return format("{} min", std::chrono::duration_cast<std::chrono::minutes>(time).count());
}

// The marker whose directory holds the key, directly or below; null if there is none.
const std::string* marker_over(const std::string& key, const std::vector<std::string>& markers) {
    const auto found = std::find_if(markers.begin(), markers.end(),
                                    [&](const std::string& marker) { return key.starts_with(directory_of(marker)); });
    return found == markers.end() ? nullptr : &*found;
}

// What tells whether these files were made good, or their directories made anew.
std::set<std::string> keys_of(const std::vector<FailedRecord>& failed, const std::string& directory) {
    std::set<std::string> keys;
    for (const FailedRecord& record : failed) {
        keys.insert(record.key);
        for (std::string& above : directories_above(record.key, directory)) {
            keys.insert(std::move(above));
        }
    }
    return keys;
}

}  // namespace

void CommitGate::check(std::string marker_key, Reply<StillCounts> reply) {
    state_.env.blocking.post([this, marker_key = std::move(marker_key), reply = std::move(reply)] {
        reply(allow(directory_of(marker_key), {marker_key}));
    });
}

Result<StillCounts> CommitGate::allow(const std::string& directory, const std::vector<std::string>& markers) {
    for (int asked = 1;; ++asked) {
        StillCounts counts = counts_from_now();
        if (const Status allowed = check_markers(directory, markers); !allowed) {
            return failure(allowed.error());
        }
        // Else its own requests have waited for the end of an outage.
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
    PermitRenewals renewals = state_.env.write.permits.renewals();
    for (;;) {
        Result<Copied> copied = copy_object(state_.env.store, source, destination, options);
        if (copied || !options.may_go_on || options.may_go_on()) {
            return copied;
        }
        if (!renewals.one_more()) {
            return failure(told_as_late(std::move(copied.error()), destination));
        }
        Result<StillCounts> allowed = allow(directory_of(destination), {destination});
        if (!allowed) {
            return failure(std::move(allowed.error()));
        }
        options.may_go_on = std::move(*allowed);
    }
}

Status CommitGate::check_tree(const std::string& directory, const std::vector<ObjectInfo>& objects) {
    std::vector<std::string> markers;
    for (const ObjectInfo& object : objects) {
        if (is_marker(object.key)) {
            markers.push_back(object.key);
        }
    }
    return markers.empty() ? Status() : check_markers(directory, markers);
}

Result<std::vector<FailedRecord>> CommitGate::failures_below(const std::string& directory) {
    Result<std::vector<FailedRecord>> known = records(directory);
    if (!known && is_refused_for_good(known.error())) {
        // A marker below it would not be allowed.
        return std::vector<FailedRecord>();
    }
    if (!known || known->empty()) {
        return known;
    }
    const Result<States> states = look(keys_of(*known, directory));
    if (!states) {
        return failure(states.error());
    }
    const WallTime now = state_.env.clock.wall_now();
    if (Status told = read_all(*known); !told) {
        return failure(told.error());
    }
    std::vector<FailedRecord> failures;
    for (FailedRecord& record : *known) {
        // What has expired here may count on another mount.
        if (still_failed(record, state_of(record.key, directory, *states), now,
                         time_to_keep(state_.env.write.config.failed_sibling_ttl))) {
            failures.push_back(std::move(record));
        } else if (record.record_etag.empty()) {
            discard(record);
        }
    }
    return failures;
}

void CommitGate::move_failures(const std::vector<FailedRecord>& failures, const std::string& from,
                               const std::string& to) {
    std::vector<FailedFile> files(failures.size());
    static_cast<void>(for_each_in_parallel(
        failures.size(), kRequestsAtOnce, [&](std::size_t index, std::function<void(Status)> done) {
            const FailedRecord& record = failures[index];
            FailedFile& file = files[index];
            file.key = to + record.key.substr(from.size());
            file.reason = record.reason;
            if (record.failed != WallTime::max()) {
                file.since = std::min(record.failed, record.since.value_or(record.failed));
            }
            file.process = record.process;
            if (!record.record_etag.empty() || record.host != state_.env.host) {
                // A record that does not say is not this machine's either.
                file.host = record.host.empty() ? "another machine" : record.host;
            }
            state_.env.store.head(file.key, [&file, done = std::move(done)](const Result<ObjectInfo>& object) {
                // The copy of the version that stayed.
                if (object || object.error().errno_value == ENOENT) {
                    file.etag_before = object ? object->etag : "";
                }
                done({});
            });
        }));
    std::vector<std::future<Status>> recorded;
    for (const FailedFile& file : files) {
        // Of a directory that is replaced.
        state_.failed.clear(file.key, [] {});
        state_.failed.add(file);
        recorded.push_back(
            ask<void>([&](auto done) { state_.failed.when_recorded(file.key, [done] { done(Status()); }); }));
    }
    for (std::size_t index = 0; index < files.size(); ++index) {
        static_cast<void>(recorded[index].get());
        if (!failures[index].record_etag.empty() && !state_.failed.is_untold(files[index].key)) {
            discard(failures[index]);
        }
    }
}

Status CommitGate::check_markers(const std::string& directory, const std::vector<std::string>& markers) {
    for (int looks_left = kLooksAtLostUploads;; --looks_left) {
        std::optional<UploadId> in_the_way;
        Status allowed = check_once(directory, markers, in_the_way);
        if (!in_the_way || looks_left == 0 || !may_be_lost(*in_the_way)) {
            return allowed;
        }
        std::this_thread::sleep_for(kBetweenLooks);
    }
}

bool CommitGate::may_be_lost(const UploadId& upload) const {
    const auto parts =
        wait_for<std::vector<UploadedPart>>([&](auto done) { state_.env.store.list_parts(upload, done); });
    return parts ? parts->empty() : parts.error().s3_code == "NoSuchUpload";
}

Status CommitGate::check_once(const std::string& directory, const std::vector<std::string>& markers,
                              std::optional<UploadId>& in_the_way) {
    const WallTime now = state_.env.clock.wall_now();
    const Milliseconds ttl = state_.env.write.config.failed_sibling_ttl;
    Result<Evidence> evidence = gather(directory);
    if (!evidence) {
        return failure(evidence.error());
    }
    auto& [failed, unfinished] = *evidence;
    std::erase_if(failed, [&](const auto& record) {
        return marker_over(record.key, markers) == nullptr || counts_only_elsewhere(record, now, ttl);
    });
    std::erase_if(unfinished, [&](const auto& upload) { return marker_over(upload.upload.key, markers) == nullptr; });
    std::set<std::string> keys = keys_of(failed, directory);
    for (const OpenUpload& upload : unfinished) {
        keys.insert(upload.upload.key);
    }
    const Result<States> states = look(keys);
    if (!states) {
        return failure(states.error());
    }
    if (Status told = read_all(failed); !told) {
        return told;
    }
    for (const FailedRecord& record : failed) {
        const NameState state = state_of(record.key, directory, *states);
        if (Status allowed = check_record(record, state, *marker_over(record.key, markers)); !allowed) {
            return allowed;
        }
    }
    for (const OpenUpload& upload : unfinished) {
        const std::string& key = upload.upload.key;
        if (is_in_the_making(upload, states->at(key), now, ttl)) {
            if (!upload.upload.id.empty()) {
                in_the_way = upload.upload;
            }
            return failure(EIO, format("{} is not committed: {} is being written by another mount, or was left by one "
                                       "that ended; wait for it, or write that file again, then commit again; an "
                                       "upload older than {} does not count",
                                       *marker_over(key, markers), key, minutes(ttl)));
        }
    }
    return {};
}

// In the order in which a file that fails leaves them: one that has ended by the time of its list shows in a later one.
Result<CommitGate::Evidence> CommitGate::gather(const std::string& directory) {
    std::set<std::string> own = being_written();
    const std::string hidden = hidden_prefix(state_.env.prefix, directory);
    auto uploads_answer = ask_for_uploads(directory);
    auto hidden_answer = ask_for_uploads(hidden);
    Result<std::vector<OpenUpload>> uploads = told(uploads_answer.get());
    Result<std::vector<OpenUpload>> hidden_uploads = told(hidden_answer.get());
    if (!uploads || !hidden_uploads) {
        return failure(!uploads ? uploads.error() : hidden_uploads.error());
    }
    Evidence evidence{{}, of_others(std::move(*uploads), std::move(own))};
    // What was an upload before is an object until the file has its name.
    const Result<std::vector<ObjectInfo>> hidden_objects = list_all(state_.env.store, hidden);
    if (!hidden_objects) {
        return failure(hidden_objects.error());
    }
    // A file that failed has its record before anything else of it is ended or removed.
    Result<std::vector<FailedRecord>> failed = records(directory);
    if (!failed) {
        return failure(failed.error());
    }
    evidence.failed = std::move(*failed);
    for (const OpenUpload& upload : *hidden_uploads) {
        add_hidden(evidence, upload.upload.key, upload.initiated);
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
        // One that is saved may stay open for as long as a child process lives: an upload is another mount's. Of one
        // that has failed the record tells.
        if (node->writer->dirty() && !node->writer->failed()) {
            keys.insert(node->writer->key());
        }
    }
    return keys;
}

Result<std::vector<FailedRecord>> CommitGate::records(const std::string& directory) {
    const std::string place = state_.failed.record_key(directory);
    const Result<std::vector<ObjectInfo>> objects = list_all(state_.env.store, place);
    if (!objects) {
        return failure(objects.error());
    }
    // What this mount knows is newer than what it has written. Another may have failed to write the same file since.
    std::map<std::string, FailedRecord> own;
    for (FailedRecord& record : state_.failed.below(directory)) {
        if (state_.failed.is_untold(record.key)) {
            // Only the version under the name tells: this machine's clock may be another than the store's.
            record.failed = WallTime::max();
        }
        own.emplace(record.key, std::move(record));
    }
    const std::map<std::string, std::string> cleared = state_.failed.being_cleared(directory);
    std::vector<FailedRecord> records;
    for (const ObjectInfo& object : *objects) {
        const std::string key = directory + object.key.substr(place.size());
        const auto known = own.find(key);
        const std::string written = known != own.end() ? state_.failed.record_etag(key) : "";
        if (known != own.end() && written == object.etag) {
            known->second.failed = failed_by(object.last_modified, known->second.late);
        }
        const auto left = cleared.find(key);
        const bool is_cleared = left != cleared.end() && (left->second.empty() || left->second == object.etag);
        // Where one is not out yet, an earlier record is in its place: the facts of that one count as well.
        const bool is_known =
            known != own.end() && (written.empty() ? !state_.failed.is_untold(key) : written == object.etag);
        if (!is_cleared && !is_known && !may_be_missing(key, state_.env.write.config)) {
            FailedRecord record;
            record.key = key;
            record.failed = object.last_modified;
            record.record_etag = object.etag;
            records.push_back(std::move(record));
        }
    }
    for (auto& [key, record] : own) {
        records.push_back(std::move(record));
    }
    return records;
}

std::future<Result<std::vector<OpenUpload>>> CommitGate::ask_for_uploads(const std::string& prefix) {
    return ask<std::vector<OpenUpload>>([&](auto done) {
        if (cannot_list_uploads_) {
            done(std::vector<OpenUpload>());
        } else {
            state_.env.store.list_uploads(prefix, done);
        }
    });
}

Result<std::vector<OpenUpload>> CommitGate::told(Result<std::vector<OpenUpload>> uploads) {
    if (!uploads && is_refused_for_good(uploads.error())) {
        if (!cannot_list_uploads_.exchange(true)) {
            log_warning(escaped("files that other mounts are still writing do not hold a commit back: " +
                                uploads.error().message));
        }
        return std::vector<OpenUpload>();
    }
    return uploads;
}

std::vector<OpenUpload> CommitGate::of_others(std::vector<OpenUpload> uploads, std::set<std::string> own) const {
    // Of before and after the list was made. What was saved in between is in the bucket by now.
    own.merge(being_written());
    const std::string control = state_.env.prefix + std::string(kControlDirectory) + "/";
    std::erase_if(uploads, [&](const OpenUpload& upload) {
        const std::string& key = upload.upload.key;
        // That of a copy, by a rename or link(2), and that of a file that failed, which is being ended, have no writer
        // here.
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
            state_.env.store.head(list[index], [&, index, done = std::move(done)](Result<ObjectInfo> object) {
                if (object) {
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

Status CommitGate::check_record(const FailedRecord& record, const NameState& state, const std::string& marker_key) {
    const WallTime now = state_.env.clock.wall_now();
    const Milliseconds ttl = state_.env.write.config.failed_sibling_ttl;
    if (!still_failed(record, state, now, ttl)) {
        if (!still_failed(record, state, now, time_to_keep(ttl))) {
            discard(record);
        }
        return {};
    }
    return failure(EIO, format("{} is not committed: {} could not be written on {} ({}); write that file again, or "
                               "remove it or its directory, then commit again; it is forgotten after {}",
                               marker_key, record.key, record.host.empty() ? "another mount" : record.host,
                               record.reason.empty() ? "its record does not say why" : record.reason, minutes(ttl)));
}

// Also where a file seems to have been written since: its record may name that commit as one that failed.
Status CommitGate::read_all(std::vector<FailedRecord>& records) {
    Status told =
        for_each_in_parallel(records.size(), kRequestsAtOnce, [&](std::size_t index, std::function<void(Status)> done) {
            if (records[index].record_etag.empty()) {
                done({});
            } else {
                read(records[index], std::move(done));
            }
        });
    std::erase_if(records, [](const FailedRecord& record) { return record.key.empty(); });
    return told;
}

void CommitGate::read(FailedRecord& record, std::function<void(Status)> done) {
    auto text = std::make_shared<std::string>();
    GetRequest request;
    request.key = state_.failed.record_key(record.key);
    request.is_small = true;
    request.on_body = [text](ByteSpan bytes) {
        text->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return text->size() <= kMaxRecordBytes;
    };
    state_.env.store.get(std::move(request), [&record, text, done = std::move(done)](const Result<GetResponse>& got) {
        if (!got && got.error().errno_value == ENOENT) {
            record.key.clear();
            done({});
            return;
        }
        if (!got && text->size() <= kMaxRecordBytes) {
            done(failure(got.error()));
            return;
        }
        FailedRecord told = parse_record(std::string_view(*text).substr(0, kMaxRecordBytes));
        told.key = std::move(record.key);
        told.failed = failed_by(record.failed, told.late);
        told.record_etag = std::move(record.record_etag);
        record = std::move(told);
        done({});
    });
}

void CommitGate::discard(const FailedRecord& record) {
    const std::string& key = record.key;
    if (record.record_etag.empty()) {
        state_.failed.clear(key, [] {});
        return;
    }
    const RemoveRequest request(state_.failed.record_key(key), record.record_etag);
    state_.env.store.remove(request, [key](const Status& removed) {
        if (!removed) {
            log_debug(escaped("the record of " + key + " is left: " + removed.error().message));
        }
    });
}

}  // namespace ckptfs::fs
