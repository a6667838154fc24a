// SPDX-License-Identifier: Apache-2.0
// What earlier mounts have left on the disk.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <variant>

#include "base/text.h"
#include "ckptfs/log.h"
#include "writeback/unsent_changes.h"

namespace ckptfs {

void UnsentChanges::take_over(std::vector<LogEntry> entries, WallTime last_sent) {
    std::map<std::uint64_t, UnsentChange> unsent;
    last_sent_before_ = last_sent;
    const MutexLock lock(mutex_);
    for (LogEntry& entry : entries) {
        if (auto* const change = std::get_if<UnsentChange>(&entry)) {
            last_number_ = std::max(last_number_, change->number);
            unsent.insert_or_assign(change->number, std::move(*change));
        } else if (std::holds_alternative<GivenUpChange>(entry)) {
            // No other change may have its number.
            last_number_ = std::max(last_number_, number_of(entry));
            unsent.erase(number_of(entry));
        } else {
            const SentChange& sent = std::get<SentChange>(entry);
            EtagAliases::Times times{{}, last_sent};
            if (const auto found = unsent.find(sent.number); found != unsent.end()) {
                times.acknowledged = found->second.object.last_modified;
                if (!sent.etag.empty()) {
                    sent_before_.emplace_back(std::move(found->second.object), sent.etag);
                }
                unsent.erase(found);
            }
            if (!sent.key.empty()) {
                aliases_.note(sent.key, sent.acknowledged_etag, sent.etag, times);
            }
        }
    }
    for (auto& [number, change] : unsent) {
        adopt(std::move(change));
    }
    last_acknowledged_ = last_left_ = last_number_;
    if (unsent_ > 0) {
        log_info(format("{} of an earlier mount, {} MiB, go to the bucket now", counted(unsent_, "unsent change"),
                        mebibytes(unsent_bytes_)));
    }
}

void UnsentChanges::adopt(UnsentChange change) {
    auto held = std::make_shared<HeldChange>();
    held->body.pieces = change.body;
    held->body.files = open_files(change);
    held->change = std::move(change);
    held->may_be_made = true;
    find_sources(*held);
    if (announcements_ != nullptr && !held->change.announcement.empty()) {
        left_.push_back(held->change.announcement);
    }
    ++unsent_;
    unsent_bytes_ += bytes_on_disk(held->change);
    overlay_.add(held);
    order_.add(std::move(held));
}

std::vector<std::shared_ptr<BodyFile>> UnsentChanges::open_files(const UnsentChange& change) {
    std::map<std::uint64_t, std::shared_ptr<BodyFile>> files;
    for (const BodyPiece& piece : change.body) {
        if (piece.place != BodyPiece::Place::kFile || files.contains(piece.file)) {
            continue;
        }
        last_file_ = std::max(last_file_, piece.file);
        // A copy of a refused change shares its file (keep_bytes()): the file stays until the last of them has been
        // sent.
        std::weak_ptr<BodyFile>& known = left_files_[piece.file];
        std::shared_ptr<BodyFile> opened = known.lock();
        Result<std::shared_ptr<BodyFile>> file =
            opened != nullptr ? opened : BodyFile::open(environment_.directory, piece.file);
        if (file) {
            known = *file;
            files.emplace(piece.file, std::move(*file));
        } else {
            // The change fails, and reports that for as long as it does.
            log_error(
                escaped(change.object.key + ": was acknowledged, and its bytes are gone: " + file.error().message));
        }
    }
    std::vector<std::shared_ptr<BodyFile>> opened;
    for (auto& [number, file] : files) {
        opened.push_back(std::move(file));
    }
    return opened;
}

// Removes files of changes that were never acknowledged or are in the bucket.
void UnsentChanges::remove_unused_files() {
    std::set<std::uint64_t> used;
    {
        const MutexLock lock(mutex_);
        for (const HeldPtr& held : order_.all()) {
            for (const BodyPiece& piece : held->change.body) {
                used.insert(piece.file);
            }
        }
    }
    std::error_code error;
    std::filesystem::directory_iterator each(environment_.directory, error);
    for (; !error && each != std::filesystem::directory_iterator(); each.increment(error)) {
        const auto number = BodyFile::number_of(each->path().filename().string());
        if (number && !used.contains(*number)) {
            std::error_code ignored;
            std::filesystem::remove(each->path(), ignored);
        }
    }
}

}  // namespace ckptfs
