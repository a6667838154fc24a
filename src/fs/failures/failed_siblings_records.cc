// SPDX-License-Identifier: Apache-2.0
// The records of files that failed on this mount, in the bucket and in its journal.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>

#include "base/text.h"
#include "ckptfs/log.h"
#include "ckptfs/store_limits.h"
#include "fs/failures/failed_siblings.h"

namespace ckptfs::fs {

namespace {

constexpr Milliseconds kLongestPause{std::chrono::minutes(1)};
// Doublings of kTick that stay below the longest pause.
constexpr int kMostDoublings = 4;
// Records that are remembered of one file that has failed again and again.
constexpr std::size_t kMostRecords = 8;
// A reason is a line or two.
constexpr std::size_t kMostRecordBytes = std::size_t{64} << 10;

// A lower bound: the steady clock stands still while the machine is hibernated.
std::chrono::seconds lateness(SteadyTime::duration since) {
    return std::max(std::chrono::seconds(0), std::chrono::floor<std::chrono::seconds>(since) - kTimesDifferBy);
}

// Whether two records that were read are of one failure, whenever they were written: also by the next mount after a
// kill.
bool tell_the_same(const FailedRecord& one, const FailedRecord& other) {
    return one.host == other.host && one.etag_before == other.etag_before && one.unanswered == other.unanswered &&
           one.began == other.began;
}

}  // namespace

// To be called before the store is asked, which may take longer than this process lives.
void FailedSiblings::note(Entry& entry) {
    entry.noted = true;
    FailedRecord record = record_of(entry);
    record.since = record.since.value_or(record.failed);
    record.noted = record.failed - std::chrono::duration_cast<WallTime::duration>(entry.file.ago);
    record.late = {};
    outbox_.add([this, key = entry.file.key, text = record_text(record)] { notes_.begun(key, text); });
}

void FailedSiblings::end_note(Entry& entry) {
    if (std::exchange(entry.noted, false)) {
        outbox_.add([this, key = entry.file.key] { notes_.ended(key); });
    }
}

void FailedSiblings::settle(Entries::iterator found) {
    Entry& entry = found->second;
    if (entry.cleared || entry.recorded) {
        end_note(entry);
    }
    if (entry.in_flight) {
        return;
    }
    if (entry.cleared ? !entry.may_exist : entry.recorded) {
        for (std::function<void()>& then : std::exchange(entry.waiting, {})) {
            outbox_.add(std::move(then));
        }
        if (entry.cleared) {
            entries_.erase(found);
        }
        return;
    }
    entry.in_flight = entry.may_exist = true;
    if (entry.cleared) {
        remove_record(found->first, entry);
    } else {
        // The ETag of the record before counts no more, once this one may be there.
        entry.record_etag.clear();
        write_record(found->first, entry);
    }
}

void FailedSiblings::remove_record(const std::string& key, const Entry& entry) {
    if (entry.record_etag.empty()) {
        outbox_.add([this, key, own = entry.own_records] { remove_if_among(key, own); });
    } else {
        outbox_.add([this, key, etag = entry.record_etag] { remove_version(key, etag); });
    }
}

GetRequest FailedSiblings::record_request(const std::string& key, const std::shared_ptr<std::string>& text) const {
    GetRequest request;
    request.key = record_key(key);
    request.is_small = true;
    request.on_body = [text](ByteSpan bytes) {
        text->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return text->size() <= kMostRecordBytes;
    };
    return request;
}

void FailedSiblings::remove_if_among(const std::string& key, const std::vector<FailedRecord>& own) {
    auto text = std::make_shared<std::string>();
    store_.get(record_request(key, text), [this, key, own, text](const Result<GetResponse>& got) {
        const bool is_unknown = !got && got.error().errno_value != ENOENT && text->size() <= kMostRecordBytes;
        if (is_unknown) {
            answered(key, {}, failure(got.error()));
            return;
        }
        const FailedRecord there = parse_record(*text);
        const bool is_own = got && std::any_of(own.begin(), own.end(), [&there](const FailedRecord& record) {
                                return tell_the_same(record, there);
                            });
        is_own ? remove_version(key, got->object.etag) : answered(key, {}, {});
    });
}

void FailedSiblings::remove_version(const std::string& key, const std::string& record_etag) {
    store_.remove(RemoveRequest(record_key(key), record_etag), [this, key](const Status& status) {
        // What another mount has put there is not this one's to remove.
        const bool is_anothers = !status && status.error().errno_value == ESTALE;
        answered(key, {}, is_anothers ? Status() : status);
    });
}

// The store is asked for the object first in any case. If it cannot be reached for a while, the record says for how
// long.
void FailedSiblings::write_record(const std::string& key, const Entry& entry) {
    outbox_.add([this, key, former = entry.former,
                 written = NewRecord{entry.failure_number, entry.failed_at - entry.file.ago, record_of(entry)}] {
        store_.head(key, [this, key, former, written](const Result<ObjectInfo>& object) {
            const FailedRecord& record = written.record;
            const bool is_anothers = record.etag_before && object && object->etag != *record.etag_before &&
                                     !is_left_by_failed(record.unanswered, *object);
            if (is_anothers) {
                made_good_elsewhere(key, written.failure_number);
                return;
            }
            const std::optional<ObjectInfo> there = object ? std::optional(*object) : std::nullopt;
            NewRecord now = written;
            if (former && still_failed(*former, {there, {}}, clock_.wall_now(), place_.ttl)) {
                now.record.began = earlier(record.began, former->began);
            }
            look_at_former(key, std::move(now), there);
        });
    });
}

// An earlier attempt on another mount may have begun before a marker was acknowledged, which this record is to hold
// back as well. If the store does not say, this attempt's beginning is all that is known.
void FailedSiblings::look_at_former(const std::string& key, NewRecord record, std::optional<ObjectInfo> object) {
    if (!record.record.began) {
        put_record(key, std::move(record));
        return;
    }
    auto text = std::make_shared<std::string>();
    store_.get(record_request(key, text), [this, key, record = std::move(record), object = std::move(object),
                                           text](const Result<GetResponse>& got) {
        NewRecord now = record;
        FailedRecord former = got ? parse_record(*text) : FailedRecord{};
        if (got && former.began) {
            former.key = key;
            former.failed = failed_by(got->object.last_modified, former.late);
            if (still_failed(former, {object, {}}, clock_.wall_now(), place_.ttl)) {
                now.record.began = earlier(now.record.began, former.began);
            }
        }
        put_record(key, std::move(now));
    });
}

void FailedSiblings::put_record(const std::string& key, NewRecord record) {
    record.record.late = lateness(clock_.now() - record.failed);
    PutRequest request;
    request.key = record_key(key);
    const std::string text = record_text(record.record);
    request.body = Payload::from_string(text);
    request.content_type = "text/plain";
    WrittenRecord written{record.failure_number, record.record.late, parse_record(text)};
    store_.put(std::move(request), [this, key, written = std::move(written)](const Result<PutResponse>& result) {
        answered(key, written, result ? Status() : failure(result.error()), result ? result->etag : "");
    });
}

void FailedSiblings::made_good_elsewhere(const std::string& key, int failure_number) {
    MutexLock lock(mutex_);
    const auto found = entries_.find(key);
    Entry& entry = found->second;
    entry.in_flight = entry.may_exist = false;
    entry.failures = 0;
    entry.cleared = entry.cleared || failure_number == entry.failure_number;
    settle(found);
    answer_if_all_recorded();
    outbox_.deliver(lock);
}

// The first record is the one that is there, if any was taken: it is kept, and the second goes.
void FailedSiblings::note_tried(Entry& entry, const FailedRecord& record) {
    std::vector<FailedRecord>& own = entry.own_records;
    if (std::any_of(own.begin(), own.end(), [&](const FailedRecord& each) { return tell_the_same(each, record); })) {
        return;
    }
    if (own.size() == kMostRecords) {
        own.erase(std::next(own.begin()));
    }
    own.push_back(record);
}

void FailedSiblings::answered(const std::string& key, const WrittenRecord& written, const Status& status,
                              const std::string& record_etag) {
    MutexLock lock(mutex_);
    const auto found = entries_.find(key);
    Entry& entry = found->second;
    entry.in_flight = false;
    if (status) {
        entry.failures = 0;
        // It may have been cleared, and have failed again, meanwhile.
        entry.recorded = written.failure_number == entry.failure_number;
        entry.may_exist = written.failure_number != 0;
        if (entry.recorded && entry.may_exist) {
            entry.file.began = written.record.began;
        }
        entry.record_etag = record_etag;
        entry.own_records.clear();
        if (entry.may_exist) {
            entry.own_records.push_back(written.record);
        }
        entry.late = written.late;
        settle(found);
        answer_if_all_recorded();
        outbox_.deliver(lock);
        return;
    }
    if (written.failure_number != 0) {
        note_tried(entry, written.record);
    }
    if (entry.failures == 0) {
        outbox_.add([line = format("other mounts are not told yet that {} {}: {}", escaped(key),
                                   written.failure_number != 0 ? "failed" : "no longer counts as failed",
                                   escaped(status.error().message))] { log_warning(line); });
    }
    const int doublings = waiting_for_all_.empty() ? std::min(entry.failures, kMostDoublings) : 0;
    entry.next_try = clock_.now() + std::min(kTick * (1 << doublings), kLongestPause);
    ++entry.failures;
    // No caller waits for later attempts.
    for (std::function<void()>& then : std::exchange(entry.waiting, {})) {
        outbox_.add(std::move(then));
    }
    outbox_.deliver(lock);
}

}  // namespace ckptfs::fs
