// SPDX-License-Identifier: Apache-2.0
// What CommitGate does about failed files: see fs/gate/commit_gate.h.
#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/store_wait.h"
#include "base/text.h"
#include "ckptfs/log.h"
#include "ckptfs/store_limits.h"
#include "fs/gate/commit_gate.h"
#include "fs/objects/tree_copy.h"

namespace ckptfs::fs {

namespace {

constexpr std::size_t kRequestsAtOnce = 16;
// Records that ckptfs writes are a few lines.
constexpr std::uint64_t kMaxRecordBytes = 4096;

// Keys that show whether these files were written again, or their directories made again.
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

Result<std::vector<FailedRecord>> CommitGate::failures_below(const std::string& directory) {
    Result<std::vector<FailedRecord>> known = records(directory);
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
            file.began = record.began;
            if (!record.record_etag.empty() || record.host != state_.env.host) {
                // A record without a host is not this machine's either.
                file.host = record.host.empty() ? "another machine" : record.host;
            }
            state_.env.store.head(file.key, [&file, done = std::move(done)](const Result<ObjectInfo>& object) {
                // What has the new name is the copy of the version that stayed.
                if (object || object.error().errno_value == ENOENT) {
                    file.etag_before = object ? object->etag : "";
                }
                done({});
            });
        }));
    std::vector<std::future<Status>> recorded;
    for (const FailedFile& file : files) {
        // An earlier failure below the directory that is replaced.
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

Status CommitGate::check_failed(const std::string& directory, const std::vector<std::string>& markers,
                                std::vector<FailedRecord> failed, WallTime acknowledged) {
    const WallTime now = state_.env.clock.wall_now();
    const Milliseconds ttl = state_.env.write.config.failed_sibling_ttl;
    std::erase_if(failed, [&](const auto& record) {
        return marker_over(record.key, markers) == nullptr || counts_only_elsewhere(record, now, ttl);
    });
    const Result<States> states = look(keys_of(failed, directory));
    if (!states) {
        return ask_again(states.error());
    }
    if (Status told = read_all(failed); !told) {
        return ask_again(told.error());
    }
    // A file counts by when it was begun, however late it failed: the marker may have waited for it.
    std::erase_if(failed, [acknowledged](const FailedRecord& record) {
        return acknowledged != WallTime::max() && record.began && *record.began > acknowledged + kTimesDifferBy;
    });
    for (const FailedRecord& record : failed) {
        const NameState state = state_of(record.key, directory, *states);
        if (Status allowed = check_record(record, state, *marker_over(record.key, markers)); !allowed) {
            return allowed;
        }
    }
    return {};
}

Result<std::vector<FailedRecord>> CommitGate::records(const std::string& directory) {
    const std::string place = state_.failed.record_key(directory);
    // What this mount knows is newer than the records it has written. Another mount may have failed to write the same
    // file since. Read before the list: a record that is written meanwhile counts as not written yet.
    std::map<std::string, FailedRecord> own;
    for (FailedRecord& record : state_.failed.below(directory)) {
        if (state_.failed.is_untold(record.key)) {
            // Only the version under the name decides: the clock of this machine may differ from the store's.
            record.failed = WallTime::max();
        }
        own.emplace(record.key, std::move(record));
    }
    const Result<std::vector<ObjectInfo>> objects = list_all(state_.env.store, place);
    if (!objects) {
        return failure(objects.error());
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
        // If the record is not known to be this mount's, the version under the name decides.
        const bool is_cleared = left != cleared.end() && left->second == object.etag;
        // If this mount's record is not written yet, an earlier one is in its place, whose facts count as well.
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
                               record.reason.empty() ? "its record does not say why" : record.reason, in_minutes(ttl)));
}

// Reads a record also if its file seems to have been written since: it may name that commit as one that failed.
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
        state_.failed.clear_failure(record);
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
