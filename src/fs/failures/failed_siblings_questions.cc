// SPDX-License-Identifier: Apache-2.0
// What a mount knows of the files that failed on it.
#include <algorithm>
#include <cstddef>
#include <iterator>

#include "fs/failures/failed_siblings.h"

namespace ckptfs::fs {

std::vector<FailedRecord> FailedSiblings::below(const std::string& directory) const {
    const MutexLock lock(mutex_);
    std::vector<FailedRecord> files;
    for (auto each = entries_.lower_bound(directory); each != entries_.end() && each->first.starts_with(directory);
         ++each) {
        if (!each->second.cleared) {
            files.push_back(record_of(each->second));
        }
    }
    return files;
}

FailedRecord FailedSiblings::record_of(const Entry& entry) const {
    FailedRecord record;
    record.key = entry.file.key;
    record.host = host_of(entry);
    record.reason = entry.file.reason;
    record.etag_before = entry.file.etag_before;
    record.unanswered = entry.file.unanswered;
    record.failed = entry.failed;
    record.late = entry.late;
    record.since = entry.file.since;
    record.began = entry.file.began;
    record.process = entry.file.process;
    record.number = entry.failure_number;
    return record;
}

UnwrittenFiles FailedSiblings::unwritten(std::size_t most) const {
    const MutexLock lock(mutex_);
    std::vector<const Entry*> entries;
    for (const auto& [key, entry] : entries_) {
        if (!entry.cleared) {
            entries.push_back(&entry);
        }
    }
    UnwrittenFiles files{entries.size(), {}};
    const auto end = entries.begin() + static_cast<std::ptrdiff_t>(std::min(most, entries.size()));
    std::partial_sort(entries.begin(), end, entries.end(),
                      [](const Entry* one, const Entry* other) { return one->failed_at > other->failed_at; });
    std::transform(entries.begin(), end, std::back_inserter(files.latest),
                   [this](const Entry* entry) { return record_of(*entry); });
    return files;
}

std::string FailedSiblings::record_etag(const std::string& key) const {
    const MutexLock lock(mutex_);
    const auto found = entries_.find(key);
    return found == entries_.end() || found->second.in_flight ? "" : found->second.record_etag;
}

bool FailedSiblings::knows(const std::string& key) const {
    const MutexLock lock(mutex_);
    return entries_.contains(key);
}

bool FailedSiblings::is_untold(const std::string& key) const {
    const MutexLock lock(mutex_);
    const auto found = entries_.find(key);
    return found != entries_.end() && !found->second.cleared && !found->second.recorded;
}

std::vector<std::string> FailedSiblings::untold() const {
    const MutexLock lock(mutex_);
    std::vector<std::string> keys;
    for (const auto& [key, entry] : entries_) {
        if (!entry.cleared && !entry.recorded) {
            keys.push_back(key);
        }
    }
    return keys;
}

bool FailedSiblings::can_be_unlinked(const std::string& key) const {
    const MutexLock lock(mutex_);
    const auto found = entries_.find(key);
    return found != entries_.end() && !found->second.cleared && !found->second.looked_at;
}

std::map<std::string, std::string> FailedSiblings::being_cleared(const std::string& directory) const {
    const MutexLock lock(mutex_);
    std::map<std::string, std::string> records;
    for (auto each = entries_.lower_bound(directory); each != entries_.end() && each->first.starts_with(directory);
         ++each) {
        if (each->second.cleared) {
            records.emplace(each->first, each->second.record_etag);
        }
    }
    return records;
}

}  // namespace ckptfs::fs
