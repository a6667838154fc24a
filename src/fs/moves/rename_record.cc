// SPDX-License-Identifier: Apache-2.0
#include "fs/moves/rename_record.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/store_wait.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/uuid.h"
#include "ckptfs/log.h"
#include "fs/moves/repair_policy.h"
#include "fs/objects/tree_copy.h"

namespace ckptfs::fs {

Status RenameRecord::create(DirectoryMarker rename) {
    rename_ = std::move(rename);
    rename_.writer_id = rename_.rename_id;
    return write_and_beat(MarkerState::kCopying, this_moment());
}

Status RenameRecord::take_over(const StoredMarker& record, MarkerState state) {
    rename_ = *record.marker;
    rename_.writer_id = random_uuid();
    etag_ = record.etag;
    return write_and_beat(state, this_moment());
}

Status RenameRecord::make_anew(const DirectoryMarker& rename, MarkerState state) {
    StoredMarker none;
    none.marker = rename;
    // Used by markers only.
    none.marker->source_was_implied = false;
    taken_over_ = false;
    return take_over(none, state);
}

Status RenameRecord::change_state(MarkerState state) {
    stop_beating();
    const Moment began = this_moment();
    if (taken_over_ || is_late(began)) {
        return taken_over(rename_.source);
    }
    Status written = write_and_beat(state, began);
    if (written || !is_lost_race(written.error())) {
        return written;
    }
    // The record that was taken over may have this state already, written by an attempt that got no answer.
    Error error = taken_over(rename_.source).value();
    error.outcome_unknown = written.error().outcome_unknown;
    return failure(std::move(error));
}

Status RenameRecord::write_and_beat(MarkerState state, const Moment& began) {
    if (Status written = write(state, began); !written) {
        return written;
    }
    rename_.state = state;
    created_ = created_ == SteadyTime{} ? clock_.now() : created_;
    start_beating();
    return {};
}

Status RenameRecord::remove() {
    stop_beating();
    return remove_all(store_, {record_key(rename_), names_key(rename_)}, [this] { return !lost(); });
}

bool RenameRecord::lost() const {
    return taken_over_ || is_late(this_moment());
}

bool RenameRecord::is_late(const Moment& moment) const {
    const SteadyTime alive{SteadyTime::duration(alive_)};
    const WallTime alive_by_wall{WallTime::duration(alive_by_wall_)};
    return moment.steady - alive > repair_after_ / 2 || moment.wall - alive_by_wall > repair_after_ / 2;
}

Status RenameRecord::write(MarkerState state, const Moment& began) {
    DirectoryMarker record = rename_;
    record.state = state;
    record.written = began.wall;
    Result<PutResponse> written = write_marker(store_, record_key(record), record, etag_);
    if (!written) {
        taken_over_ = taken_over_ || is_lost_race(written.error());
        return failure(std::move(written.error()));
    }
    etag_ = std::move(written->etag);
    alive_ = began.steady.time_since_epoch().count();
    alive_by_wall_ = began.wall.time_since_epoch().count();
    return {};
}

void RenameRecord::start_beating() {
    {
        const MutexLock lock(mutex_);
        stopping_ = false;
    }
    try {
        heartbeat_ = start_thread("rename-beat", [this] { beat(); });
    } catch (const std::system_error& error) {
        // The rename fails if it takes longer than others wait for a heartbeat.
        log_warning(
            format("renaming {}: without a heartbeat for other mounts: {}", escaped(rename_.source), error.what()));
    }
}

void RenameRecord::stop_beating() {
    if (!heartbeat_.joinable()) {
        return;
    }
    {
        const MutexLock lock(mutex_);
        stopping_ = true;
    }
    stopped_.notify_all();
    heartbeat_.join();
}

void RenameRecord::beat() {
    MutexLock lock(mutex_);
    while (!stopped_.wait_for(lock, repair_after_ / kBeatsInTime, [this]() REQUIRES(mutex_) { return stopping_; })) {
        lock.unlock();
        const Moment began = this_moment();
        if (is_late(began)) {
            // Another mount may have ended the rename. A store without conditional writes would take this heartbeat,
            // and the holder would go on where it had stopped.
            taken_over_ = true;
        } else if (const Status written = write(rename_.state, began); !written) {
            log_warning(escaped("the rename of " + rename_.source + " sends no heartbeat: " + written.error().message));
        }
        lock.lock();
        if (taken_over_) {
            return;
        }
    }
}

}  // namespace ckptfs::fs
