// SPDX-License-Identifier: Apache-2.0
#include "fs/gate/unfinished_files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/text.h"
#include "ckptfs/bucket_layout.h"
#include "ckptfs/store_limits.h"
#include "fs/all_ended.h"
#include "fs/failures/commit_policy.h"
#include "fs/objects/directory_marker.h"
#include "staged/hidden_key.h"

namespace ckptfs::fs {

void UnfinishedFiles::record(UnfinishedFile file, Reply<void> reply) {
    const std::string& prefix = state_.env.prefix;
    const std::optional<HiddenFile> hidden = parse_hidden_key(prefix, file.key);
    std::string key = hidden ? hidden->key : file.key;
    const std::string path = key.substr(std::min(prefix.size(), key.size()));
    if (path.starts_with(kControlDirectory) || may_be_missing(key, state_.env.write.config)) {
        reply({});
        return;
    }
    find_beginning(file,
                   [this, key = std::move(key), file, reply = std::move(reply)](Result<std::optional<WallTime>> begun) {
                       if (!begun) {
                           reply(failure(std::move(begun.error())));
                       } else if (!*begun) {
                           reply({});
                       } else {
                           judge(key, {**begun, !file.asked, file.earlier_sent, file.earlier_etag}, reply);
                       }
                   });
}

void UnfinishedFiles::recall(const std::string& key, const std::string& record) {
    // What has failed here since, or was resolved, is newer.
    if (may_be_missing(key, state_.env.write.config) || state_.failed.knows(key)) {
        return;
    }
    FailedRecord told = parse_record(record);
    FailedFile file;
    file.key = key;
    file.reason = std::move(told.reason);
    file.etag_before = std::move(told.etag_before);
    // Its process has ended: any process may resolve it.
    file.host = told.host == state_.env.host ? "" : std::move(told.host);
    file.unanswered = std::move(told.unanswered);
    file.since = told.since;
    file.began = told.began;
    if (told.noted) {
        file.ago = std::max(WallTime::duration(0), state_.env.clock.wall_now() - *told.noted);
    }
    state_.failed.add(std::move(file));
}

void UnfinishedFiles::find_beginning(const UnfinishedFile& file, Reply<std::optional<WallTime>> reply) {
    if (file.asked) {
        reply(file.asked);
        return;
    }
    if (file.upload.empty()) {
        state_.env.store.head(file.key, [reply = std::move(reply)](Result<ObjectInfo> object) {
            if (object) {
                reply(std::optional(object->last_modified));
            } else if (object.error().errno_value == ENOENT) {
                reply(std::optional<WallTime>());
            } else {
                reply(failure(std::move(object.error())));
            }
        });
        return;
    }
    state_.env.store.list_uploads(
        file.key, [this, id = file.upload, reply = std::move(reply)](Result<std::vector<OpenUpload>> uploads) {
            if (!uploads && is_refused_by_store(uploads.error())) {
                // Then it holds no marker back either.
                reply(std::optional<WallTime>());
                return;
            }
            if (!uploads) {
                reply(failure(std::move(uploads.error())));
                return;
            }
            const auto found = std::find_if(uploads->begin(), uploads->end(),
                                            [&id](const OpenUpload& each) { return each.upload.id == id; });
            if (found == uploads->end()) {
                reply(std::optional<WallTime>());
                return;
            }
            const bool is_told = found->initiated != WallTime{};
            reply(std::optional(is_told ? found->initiated : state_.env.clock.wall_now()));
        });
}

void UnfinishedFiles::judge(const std::string& key, const Beginning& begun, Reply<void> reply) {
    state_.env.store.head(key, [this, key, begun, reply = std::move(reply)](Result<ObjectInfo> found) {
        if (!found && found.error().errno_value != ENOENT) {
            reply(failure(std::move(found.error())));
            return;
        }
        const std::optional<ObjectInfo> object = found ? std::optional(std::move(*found)) : std::nullopt;
        const bool is_there = object && !is_earlier(*object, begun);
        if (is_in_the_making({UploadId{key, ""}, begun.time}, is_there ? object : std::nullopt,
                             state_.env.clock.wall_now(), state_.env.write.config.failed_sibling_ttl)) {
            judge_directories(key, begun, object ? object->etag : "", reply);
        } else {
            reply({});
        }
    });
}

bool UnfinishedFiles::is_earlier(const ObjectInfo& object, const Beginning& begun) const {
    // Later, the same bytes are another mount's.
    const bool has_etag =
        begun.earlier_etag.empty() || state_.env.etag_there(object.key, object.etag) == begun.earlier_etag;
    const std::chrono::seconds late = begun.earlier_etag.empty() ? std::chrono::seconds(0) : kTimesDifferBy;
    if (begun.earlier_sent != WallTime{} && has_etag && object.last_modified <= begun.earlier_sent + late) {
        return true;
    }
    // Compares times of one clock, that of this machine.
    const bool is_of_disk = state_.env.acknowledging != nullptr && !begun.is_store_time;
    const std::optional<WallTime> acknowledged =
        is_of_disk ? state_.env.acknowledging->acknowledged_at(object) : std::nullopt;
    return acknowledged && *acknowledged < begun.time;
}

// Others may have removed the file's directory since, and have made it again without this file.
void UnfinishedFiles::judge_directories(const std::string& key, const Beginning& begun, const std::string& etag_before,
                                        Reply<void> reply) {
    const std::vector<std::string> directories = directories_above(key, state_.env.prefix);
    const WallTime surely_begun = begun.is_store_time ? begun.time : begun.time + kTimesDifferBy;
    const auto is_made_anew = std::make_shared<std::atomic<bool>>(false);
    const auto all = std::make_shared<AllEnded>(
        directories.size(),
        [this, key, etag_before, is_made_anew, begun = begun.time, reply = std::move(reply)](const Status& looked) {
            if (!looked || *is_made_anew) {
                reply(looked);
            } else {
                add({key, "the mount that was writing it was killed", etag_before, 0}, begun, reply);
            }
        });
    for (const std::string& directory : directories) {
        state_.env.store.head(directory, [surely_begun, is_made_anew, all](const Result<ObjectInfo>& marker) {
            // A marker that hides a directory goes again if its rename is undone.
            if (marker && !may_hide_directory(marker->size) && directory_made(*marker) > surely_begun) {
                *is_made_anew = true;
            }
            const bool is_told = marker || marker.error().errno_value == ENOENT;
            all->one_more(is_told ? Status() : failure(marker.error()));
        });
    }
    all->one_more({});
}

void UnfinishedFiles::add(FailedFile file, WallTime began, Reply<void> reply) {
    const std::string key = file.key;
    file.began = began;
    bool is_first = false;
    {
        const MutexLock lock(mutex_);
        is_first = added_.insert(key).second;
    }
    if (is_first) {
        state_.failed.add(std::move(file));
    }
    state_.failed.when_recorded(key, [this, key, reply = std::move(reply)] {
        if (state_.failed.is_untold(key)) {
            reply(failure(EIO, format("other mounts could not be told that {} was not finished", key)));
        } else {
            reply({});
        }
    });
}

}  // namespace ckptfs::fs
