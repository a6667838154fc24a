// SPDX-License-Identifier: Apache-2.0
#include "fs/failures/commit_policy.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>

#include "base/globs.h"
#include "base/numbers.h"
#include "base/text.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/log.h"

namespace ckptfs::fs {

namespace {

using std::chrono::duration_cast;
using std::chrono::seconds;

constexpr std::string_view kHost = "host: ";
constexpr std::string_view kReason = "reason: ";
constexpr std::string_view kEtagBefore = "etag-before: ";
constexpr std::string_view kUnanswered = "unanswered: ";
constexpr std::string_view kSince = "since: ";
constexpr std::string_view kLate = "late: ";
constexpr std::string_view kNoted = "noted: ";
constexpr std::string_view kBegan = "began: ";

// How long ckptfs gc keeps what is left, by default.
constexpr Milliseconds kKept = std::chrono::hours(24);

constexpr std::array<std::string_view, 5> kTemporaryEndings{".tmp", ".temp", ".part", ".partial", ".incomplete"};
// mkstemp(3) and its relatives put this many letters and digits behind a dot.
constexpr std::size_t kRandomLetters = 6;

std::string time_line(std::string_view name, WallTime time) {
    return format("{}{}\n", name, duration_cast<seconds>(time.time_since_epoch()).count());
}

std::optional<WallTime> parse_time(std::string_view text) {
    const auto told = whole_number<std::int64_t>(text);
    const bool is_time =
        told && *told >= 0 && *told <= duration_cast<seconds>(WallTime::max().time_since_epoch()).count();
    return is_time ? std::optional(WallTime(seconds(*told))) : std::nullopt;
}

}  // namespace

std::string record_text(const FailedRecord& record) {
    std::string text = format("{}{}\n", kHost, escaped(record.host));
    if (record.etag_before) {
        text += format("{}{}\n", kEtagBefore, escaped(*record.etag_before));
    }
    for (const std::string& write_id : record.unanswered) {
        text += format("{}{}\n", kUnanswered, escaped(write_id));
    }
    if (record.since) {
        text += time_line(kSince, *record.since);
    }
    if (record.began) {
        text += time_line(kBegan, *record.began);
    }
    if (record.noted) {
        text += time_line(kNoted, *record.noted);
    }
    if (record.late > seconds(0)) {
        text += format("{}{}\n", kLate, record.late.count());
    }
    // The reason comes last, because it may be longer than what is read of a record.
    return text + format("{}{}\n", kReason, escaped(record.reason));
}

FailedRecord parse_record(std::string_view text) {
    FailedRecord record;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.starts_with(kHost)) {
            record.host = line.substr(kHost.size());
        } else if (line.starts_with(kReason)) {
            record.reason = line.substr(kReason.size());
        } else if (line.starts_with(kEtagBefore)) {
            record.etag_before = line.substr(kEtagBefore.size());
        } else if (line.starts_with(kUnanswered)) {
            record.unanswered.emplace_back(line.substr(kUnanswered.size()));
        } else if (line.starts_with(kSince)) {
            record.since = parse_time(line.substr(kSince.size()));
        } else if (line.starts_with(kBegan)) {
            record.began = parse_time(line.substr(kBegan.size()));
        } else if (line.starts_with(kNoted)) {
            record.noted = parse_time(line.substr(kNoted.size()));
        } else if (line.starts_with(kLate)) {
            const WallTime late = parse_time(line.substr(kLate.size())).value_or(WallTime{});
            record.late = duration_cast<seconds>(late.time_since_epoch());
        }
    }
    return record;
}

std::string in_minutes(WallTime::duration time) {
    return format("{} min", duration_cast<std::chrono::minutes>(time).count());
}

std::string file_name(const std::string& key) {
    return key.substr(key.rfind('/') + 1);
}

std::string directory_of(const std::string& key) {
    return key.substr(0, key.rfind('/') + 1);
}

std::vector<std::string> directories_above(const std::string& key, const std::string& top) {
    std::vector<std::string> directories;
    for (std::string above = directory_of(key); above.size() >= top.size() && above.ends_with('/');
         above = directory_of(above.substr(0, above.size() - 1))) {
        directories.push_back(above);
    }
    return directories;
}

bool is_commit_marker(const std::string& key, const WriteConfig& config) {
    const auto& markers = config.commit_markers;
    return std::find(markers.begin(), markers.end(), file_name(key)) != markers.end();
}

bool may_be_missing(const std::string& key, const WriteConfig& config) {
    return is_commit_marker(key, config) || matches_any(file_name(key), config.keep_on_kill);
}

bool is_temporary_name(std::string_view name) {
    if (name.starts_with(".tmp") || std::any_of(kTemporaryEndings.begin(), kTemporaryEndings.end(),
                                                [&](std::string_view ending) { return name.ends_with(ending); })) {
        return true;
    }
    const std::size_t dot = name.rfind('.');
    return name.starts_with('.') && dot != 0 && dot != std::string_view::npos &&
           name.size() - dot - 1 == kRandomLetters &&
           std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dot) + 1, name.end(),
                       [](char letter) { return std::isalnum(static_cast<unsigned char>(letter)) != 0; });
}

std::optional<WallTime> earlier(const std::optional<WallTime>& one, const std::optional<WallTime>& other) {
    return one && other ? std::min(*one, *other) : (one ? one : other);
}

bool is_left_by_failed(const std::vector<std::string>& unanswered, const ObjectInfo& object) {
    const auto id = object.metadata.find(kWriteIdMetadata);
    return id != object.metadata.end() &&
           std::find(unanswered.begin(), unanswered.end(), id->second) != unanswered.end();
}

WallTime failed_by(WallTime written, seconds late) {
    return written - std::min<WallTime::duration>(late, written.time_since_epoch());
}

bool still_failed(const FailedRecord& record, const NameState& state, WallTime now, Milliseconds ttl) {
    if (now - std::min(record.failed, record.since.value_or(record.failed)) > ttl ||
        state.directory_made > record.failed) {
        return false;
    }
    if (!state.object || is_left_by_failed(record.unanswered, *state.object)) {
        return true;
    }
    // Within one second only the version decides, and the time of a large object is when its upload began.
    const bool another_version = record.etag_before && *record.etag_before != state.object->etag;
    return !another_version && state.object->last_modified <= record.failed;
}

Milliseconds time_to_keep(Milliseconds ttl) {
    return std::max(ttl, kKept);
}

bool counts_only_elsewhere(const FailedRecord& record, WallTime now, Milliseconds ttl) {
    const auto age = now - record.failed;
    return !record.record_etag.empty() && age > ttl && age <= time_to_keep(ttl);
}

bool counts_as_unsent(WallTime told, WallTime now, Milliseconds ttl) {
    return is_on_its_way(told, now) || now - told <= ttl;
}

bool is_on_its_way(WallTime told, WallTime now) {
    return now - told <= kUnsentCountsFor;
}

bool is_in_the_making(const OpenUpload& upload, const std::optional<ObjectInfo>& object, WallTime now,
                      Milliseconds ttl) {
    // Last-Modified is exact to the second, and for a large object it may be when its upload began.
    const bool written_since =
        object && object->last_modified >= std::chrono::floor<std::chrono::seconds>(upload.initiated);
    return !written_since && now - upload.initiated <= ttl;
}

}  // namespace ckptfs::fs
